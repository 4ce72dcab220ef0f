"""Opens the ledger of the settings, and says how far it is."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from actors.ids import split_receiver
from angarium import quantities
from angarium.ledger.opening import asked
from angarium.ledger.questions import Questions
from angarium.ledger.store import LedgerError
from angarium.logs import instant
from angarium.operations.failures import NotDone, OperationError
from angarium.settings import Settings
from streams.installation.topology import Names

T = TypeVar("T")

LEDGER_CODE = "no_ledger"
"""The code of a failure because the ledger does not exist, or cannot be read."""
BEHIND_AFTER_S = 15.0
"""Age from which on a note says that the ledger is behind; its writer confirms every five seconds that it
has everything."""


class LedgerLag(Struct, frozen=True, kw_only=True):
    """The progress of the ledger: it has everything recorded up to `as_of`, except the `gaps` (from, to).

    `behind_s` is 0 while its writer has everything.
    """

    as_of: str | None
    behind_s: float
    gaps: list[tuple[str | None, str]]

    @property
    def notes(self) -> list[str]:
        """Sentences for people that belong to every answer."""
        notes = [
            f"nothing is known from {since or 'the beginning'} to {until}: the journal was purged too early"
            for since, until in self.gaps
        ]
        if self.as_of is None:
            notes.append("the ledger is empty; check that angarium ledger runs")
        elif self.behind_s:
            behind = quantities.age_text(self.behind_s)
            notes.append(f"the ledger is {behind} behind, at {self.as_of}; check that angarium ledger runs")
        return notes


class OpenLedger(Struct, frozen=True):
    """The access of these operations: the open ledger, and the settings."""

    questions: Questions
    settings: Settings


async def open_ledger(settings: Settings, work: Callable[[OpenLedger], Awaitable[T]]) -> T | NotDone:
    """Do one task with the ledger of the settings."""
    try:
        async with asked(settings.ledger) as questions:
            return await work(OpenLedger(questions, settings))
    except LedgerError as error:
        return NotDone(kind="refused", text=str(error), code=LEDGER_CODE)


async def ledger_lag(of: OpenLedger) -> LedgerLag:
    """The progress of the ledger."""
    progress = await of.questions.progress(Names(of.settings.prefix).journal)
    behind_s = time.time() - max(progress.seen_at, progress.as_of) / 1000
    return LedgerLag(
        as_of=text(progress.as_of),
        behind_s=round(behind_s, 3) if behind_s >= BEHIND_AFTER_S else 0.0,
        gaps=[(text(since), instant(until / 1000)) for since, until in progress.gaps],
    )


async def number_of(of: OpenLedger, receiver: str) -> int:
    """The number of a receiver in the ledger. Fails as invalid and not_found."""
    split_receiver(receiver)
    number = await of.questions.receiver(receiver)
    if number is None:
        raise OperationError(
            "not_found",
            f"the ledger has nothing about {receiver}",
            remedy="; angarium receiver list shows all receivers",
        )
    return number


def text(at: int | None) -> str | None:
    """A time of the ledger in RFC 3339."""
    return instant(at / 1000) if at else None
