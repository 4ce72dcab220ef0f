"""Opens the ledger of the settings, and reports its progress."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from actors.ids import split_receiver
from actors.times_as_text import age_text, instant_text
from angarium import quantities
from angarium.ledger.open import open_for_queries
from angarium.ledger.queries import LedgerQueries
from angarium.ledger.store import BadAddress, LedgerError
from angarium.operations.failures import NotDone, OperationError
from angarium.settings import Settings
from streams.installation.topology import Names

T = TypeVar("T")

LEDGER_CODE = "no_ledger"
"""The code of a failure because the ledger does not exist, or cannot be read."""
BEHIND_AFTER_S = 15.0
"""Age from which on a note says that the ledger is behind; its writer confirms every five seconds that it
has everything."""
CLOCK_AHEAD_MAX_S = 60.0
"""Time that the clock of a client or a node may be ahead of ours: what it says is not in the future."""
NOTHING_RECORDED = "nothing was recorded about it, or only before the period that the ledger keeps"


class LedgerLag(Struct, frozen=True, kw_only=True):
    """The progress of the ledger: it has everything recorded up to `as_of`, except the `gaps` (from, to).

    - `behind_s`: 0 while its writer has everything.
    - `kept_since`: attempts from before are no longer kept; None if all are kept.
    """

    as_of: str | None
    behind_s: float
    gaps: list[tuple[str | None, str]]
    kept_since: str | None = None

    @property
    def lacking(self) -> list[str]:
        """The parts of the past that are not known, in a sentence each."""
        return [
            f"nothing is known from {since or 'the beginning'} to {until}: the journal was purged too early"
            for since, until in self.gaps
        ]

    @property
    def late(self) -> str:
        """The sentence that the ledger is behind; empty if it is not."""
        if self.as_of is None:
            return "the ledger is empty"
        behind = age_text(self.behind_s)
        return f"the ledger is {behind} behind, at {self.as_of}" if self.behind_s else ""

    def dropped_note(self, since: int) -> list[str]:
        """The note that a period that begins at that time (in milliseconds) reaches beyond what is kept."""
        if self.kept_since is None or quantities.parse_time(self.kept_since, 0.0) * 1000 <= since:
            return []
        return [f"attempts before {self.kept_since} are no longer kept, so this is not the whole period"]

    def why_unrecorded(self, at: float) -> str:
        """The reason why what came after that time (seconds since the epoch) may be missing, or nothing."""
        if self.late:
            return self.late
        times = [(sentence, until) for sentence, (_, until) in zip(self.lacking, self.gaps, strict=True)]
        return "; ".join(sentence for sentence, until in times if quantities.parse_time(until, at) > at)

    @property
    def notes(self) -> list[str]:
        """Sentences for people that belong to every answer, on the command line."""
        return self.lacking + [
            f"{late}: angarium ledger is catching up, or does not run" for late in (self.late,) if late
        ]


class OpenLedger(Struct, frozen=True):
    """The access of these operations: the open ledger, and the settings."""

    queries: LedgerQueries
    settings: Settings


async def open_ledger(settings: Settings, work: Callable[[OpenLedger], Awaitable[T]]) -> T | NotDone:
    """Do one task with the ledger of the settings."""
    try:
        async with open_for_queries(settings.ledger) as queries:
            return await work(OpenLedger(queries, settings))
    except BadAddress as error:
        return NotDone(kind="invalid", text=str(error), code=LEDGER_CODE)
    except LedgerError as error:
        return NotDone(kind="refused", text=str(error), code=LEDGER_CODE)


async def ledger_lag(ledger: OpenLedger) -> LedgerLag:
    """The progress of the ledger."""
    progress = await ledger.queries.progress(Names(ledger.settings.prefix).journal)
    behind_s = time.time() - max(progress.seen_at, progress.as_of) / 1000
    return LedgerLag(
        as_of=text(progress.as_of),
        behind_s=round(behind_s, 3) if behind_s >= BEHIND_AFTER_S else 0.0,
        gaps=[(text(since), instant_text(until / 1000)) for since, until in progress.gaps],
        kept_since=text(progress.kept_since),
    )


async def number_of(ledger: OpenLedger, receiver: str) -> int:
    """The number of a receiver in the ledger. Fails as invalid and not_found."""
    split_receiver(receiver)
    number = await ledger.queries.receiver(receiver)
    if number is None:
        raise OperationError(
            "not_found",
            f"the ledger has nothing about {receiver}: {await why_nothing(ledger, NOTHING_RECORDED)}",
            remedy="; angarium receiver list shows all receivers",
        )
    return number


async def why_nothing(ledger: OpenLedger, otherwise: str) -> str:
    """The reason why the ledger knows nothing: it is behind, lacks a part of the past, or `otherwise`."""
    known = await ledger_lag(ledger)
    return "; ".join([*known.lacking, *filter(None, [known.late])]) or otherwise


def text(at: int | None) -> str | None:
    """A time of the ledger in RFC 3339."""
    return instant_text(at / 1000) if at else None
