"""Finds the positions of the copies of an event for a receiver, and the transforms that it had."""

from msgspec import Struct

from angarium.operations.failures import operation
from angarium.operations.ledger_queries.ledger_access import LedgerLag, OpenLedger, ledger_lag
from streams.installation.topology import Names

COPIES_MAX = 8
"""Copies that are looked for, the newest first: an event has several if it was sent again."""
TRANSFORMS_MAX = 1000
"""Changes of a transform that are read; with more, it is not known which one an event had."""


class TransformChange(Struct, frozen=True):
    """Another transform of a receiver from a time on (in milliseconds); revision 0: none."""

    at: int
    revision: int


class RecordedCopies(Struct, frozen=True):
    """The copies of an event, and the transforms that its receiver had.

    - `positions`: those of its copies in the stream, the newest first.
    - `are_all`: `changes` has all that are recorded.
    - `recorded_to`: the time (in milliseconds) up to which all that happened is recorded.
    """

    positions: list[int]
    changes: list[TransformChange]
    are_all: bool
    recorded_to: int
    ledger: LedgerLag


@operation
async def recorded_copies(ledger: OpenLedger, event: str, receiver: str) -> RecordedCopies:
    """Find the copies; there are none if the ledger knows nothing about the receiver."""
    number = await ledger.queries.receiver(receiver)
    progress = await ledger.queries.progress(Names(ledger.settings.prefix).journal)
    recorded_to, lag = max(progress.seen_at, progress.as_of), await ledger_lag(ledger)
    if number is None:
        return RecordedCopies([], [], are_all=True, recorded_to=recorded_to, ledger=lag)
    positions = await ledger.queries.copies(event, number, COPIES_MAX)
    found = await ledger.queries.transforms(number, TRANSFORMS_MAX + 1)
    changes = [TransformChange(*each) for each in found[:TRANSFORMS_MAX]]
    return RecordedCopies(positions, changes, len(found) <= TRANSFORMS_MAX, recorded_to, lag)
