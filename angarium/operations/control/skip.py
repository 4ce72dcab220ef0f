"""Gives up the event at a receiver's head."""

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.control.ask import ATTEMPT_TIMEOUT_S, ask
from angarium.operations.failures import operation


class Skipped(Struct, frozen=True, kw_only=True):
    """The event that is a dead letter now, and its number."""

    sequence: int
    event_id: str


@operation
async def skip(to: Access, receiver: str) -> Skipped:
    """Make a dead letter of it, so that the next one goes. An attempt that is under way is awaited."""
    answer = await ask(to, "skip", receiver, timeout_s=ATTEMPT_TIMEOUT_S)
    return Skipped(sequence=answer["sequence"], event_id=answer["event_id"])
