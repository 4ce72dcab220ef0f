"""Gives up a receiver's oldest event."""

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.receivers.control_requests.ask import ATTEMPT_TIMEOUT_S, ask, requested_by


class Skipped(Struct, frozen=True, kw_only=True):
    """The event that is now a dead letter, and its number."""

    sequence: int
    event_id: str


@operation
async def skip(access: Access, receiver: str) -> Skipped:
    """Make the oldest event a dead letter, so that the next one is sent. Waits for an attempt in flight."""
    answer = await ask(access, "skip", receiver, requested_by(access), timeout_s=ATTEMPT_TIMEOUT_S)
    return Skipped(sequence=answer["sequence"], event_id=answer["event_id"])
