"""Discards a receiver's waiting events and clears its failures; both are recorded."""

from collections.abc import Callable

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.receivers.control_requests.ask import (
    ATTEMPT_TIMEOUT_S,
    WaitingEvents,
    ask,
    backlog,
    requested_by,
)


class Forgotten(Struct, frozen=True, kw_only=True):
    """The count of discarded events, and the number that the next event gets."""

    discarded: int
    next_sequence: int


@operation
async def forget(
    access: Access, receiver: str, agreed: Callable[[WaitingEvents], bool] = lambda _: True
) -> Forgotten | None:
    """Discard the waiting events, if `agreed` returns True for their number; returns None if it does not.

    An attempt under way is awaited.
    """
    found = await backlog(access, receiver)
    if found.count and not agreed(found):
        return None
    answer = await ask(access, "forget", receiver, requested_by(access), timeout_s=ATTEMPT_TIMEOUT_S)
    return Forgotten(discarded=answer["discarded"], next_sequence=answer["next_sequence"])
