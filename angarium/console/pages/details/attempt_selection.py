"""The selection of attempts on the page of a receiver: by result, status, error and time."""

import re
from urllib.parse import urlencode

from msgspec import Struct

from actors.errors import BadInput
from angarium import quantities
from angarium.ledger.ledger_answers import AttemptFilter

ERROR_CHARS_MAX = 100
_STATUS = re.compile(r"([1-5])([0-9]{2}|xx)\Z")


class AttemptSelection(Struct, frozen=True):
    """The selection as a person made it; empty texts select nothing."""

    failed: bool = False
    status: str = ""
    error: str = ""
    since: str = ""

    @property
    def has_any(self) -> bool:
        """True if it leaves out some attempts."""
        return self != AttemptSelection()

    @property
    def query(self) -> str:
        """The selection as the query of an address."""
        given = {
            "failed": "true" if self.failed else "", "status": self.status, "error": self.error,
            "since": self.since,
        }  # fmt: skip
        return urlencode({name: value for name, value in given.items() if value})

    def as_filter(self, limit: int, now: float) -> AttemptFilter:
        """The filter of the ledger. Raises BadInput."""
        since = quantities.parse_time(self.since, now) if self.since else 0.0
        if not self.error.isprintable():
            raise BadInput("write an error in characters that can be printed")
        return AttemptFilter(
            failed=self.failed, status=_statuses(self.status), error=self.error or None,
            since=round(since * 1000), limit=limit,
        )  # fmt: skip


def _statuses(text: str) -> tuple[int, int] | None:
    """The first and the last status that a text names. Raises BadInput."""
    if not text:
        return None
    if not (found := _STATUS.match(text.lower())):
        raise BadInput(f"{text[:20]!r} is not a status; write one such as 503, or a class such as 5xx")
    first = int(found[1]) * 100
    return (first, first + 99) if found[2] == "xx" else (int(text), int(text))
