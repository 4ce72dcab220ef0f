"""Subjects of entries: timed events. Each names the second in which its event is due."""

from collections.abc import Iterator

from msgspec import Struct

DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60
_SIZES = (DAY_S, HOUR_S, MINUTE_S, 1)


class EntryAddress(Struct, frozen=True):
    """The address of an entry.

    - `second`: when its event is due, in seconds since the epoch.
    - `id_hash`: a hash of the event's id, by which the entry is found.
    - `source`: the source that a copy of the event would have had.
    """

    partition: int
    second: int
    tenant: str
    id_hash: str
    source: int


class TimedSubjects(Struct, frozen=True):
    """The subjects of entries under the prefix of an installation."""

    prefix: str

    @property
    def pattern(self) -> str:
        """The subjects of all entries."""
        return f"{self.prefix}.later.*.*.*.*.*.*.*.*"

    def entry(self, address: EntryAddress) -> str:
        """The subject of an entry."""
        second = ".".join(_tokens(address.second, 1))
        owner = f"{address.tenant}.{address.id_hash}.{address.source}"
        return f"{self.prefix}.later.{address.partition}.{second}.{owner}"

    def address(self, subject: str) -> EntryAddress:
        """The address of an entry, from its subject. Raises `ValueError`."""
        partition, day, hour, minute, second, tenant, id_hash, source = subject.removeprefix(
            f"{self.prefix}.later."
        ).split(".")
        at = int(day) * DAY_S + int(hour) * HOUR_S + int(minute) * MINUTE_S + int(second)
        return EntryAddress(int(partition), at, tenant, id_hash, int(source))

    def address_or_none(self, subject: str) -> EntryAddress | None:
        """The address of an entry; None for the subject of something else: any producer may publish."""
        try:
            return self.address(subject)
        except ValueError:
            return None

    def tenant_of_entry(self, subject: str) -> str:
        """The tenant of an entry, from its subject."""
        return subject.split(".")[-3]

    def due_in(
        self, partition: int | None, start: int, size: int, tenant: str = "*", id_hash: str = "*"
    ) -> str:
        """The subjects of entries that are due in a day, an hour, a minute or a second from `start` on."""
        tokens = [*_tokens(start, size), "*", "*", "*"][:4]
        where = "*" if partition is None else str(partition)
        return f"{self.prefix}.later.{where}.{'.'.join(tokens)}.{tenant}.{id_hash}.*"

    def tenant_entries(self, tenant: str, id_hash: str = "*") -> str:
        """The subjects of all entries of a tenant, or of those of one event id."""
        return f"{self.prefix}.later.*.*.*.*.*.{tenant}.{id_hash}.*"


def spans(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The seconds from `start` up to `end`, which is left out, as whole days, hours, minutes and seconds.

    Each span is its first second and its size.
    """
    while start < end:
        size = next(size for size in _SIZES if start % size == 0 and start + size <= end)
        yield start, size
        start += size


def _tokens(start: int, size: int) -> list[str]:
    """The tokens of a day, an hour, a minute or a second."""
    parts = (start // DAY_S, start // HOUR_S % 24, start // MINUTE_S % 60, start % 60)
    return [str(part) for part in parts[: _SIZES.index(size) + 1]]
