"""Reads the configurations of receivers in the order of their bucket, as many as it still has.

The bucket drops older values by itself, so a value that was put and replaced while no ledger ran is missing
here.
"""

from msgspec import Struct

from streams.following.journal_reader import Place
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info, until_answered
from streams.stores.receivers import is_removal


class PutConfiguration(Struct, frozen=True):
    """A configuration that was put, or None if it was removed."""

    receiver: str
    revision: int
    stored_at: float
    raw: bytes | None


class BucketReader:
    """Reads on from a place; a recreated bucket is read from its beginning."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._stream = names.receivers
        self._prefix = names.receiver("")
        self._doubtful = True
        js.add_listener(self._on_change)

    def stop(self) -> None:
        self._js.remove_listener(self._on_change)

    def _on_change(self, connected: bool) -> None:
        self._doubtful = True

    async def read(self, place: Place) -> tuple[Place, list[PutConfiguration]]:
        """Read the values after the place; returns them and the place where to go on. Waits for NATS."""
        if self._doubtful:
            self._doubtful = False
            info = await stream_info(self._js, self._stream)
            if info.created != place.created or info.last < place.position:
                place = Place(created=info.created)
        page = await until_answered(
            lambda: self._js.read(self._stream, f"{self._prefix}>", place.position + 1)
        )
        puts = [
            PutConfiguration(
                each.subject.removeprefix(self._prefix), each.sequence, each.stored_at,
                None if is_removal(each) else each.data,
            )
            for each in page.messages
        ]  # fmt: skip
        if puts:
            last = puts[-1]
            place = Place(created=place.created, position=last.revision, stored_at=last.stored_at)
        return place, puts
