"""Discards a receiver's waiting events, on record, and clears its failures."""

from collections.abc import Callable

from angarium.connecting import Access
from angarium.operations.control.ask import ATTEMPT_TIMEOUT_S, WaitingEvents, ask, backlog
from angarium.operations.failures import operation


@operation
async def forget(to: Access, receiver: str, agreed: Callable[[WaitingEvents], bool] = lambda _: True) -> bool:
    """Discard them; `agreed` is asked with their number, if there are any. False: it did not agree.

    An attempt that is under way is awaited.
    """
    found = await backlog(to, receiver)
    if found.count and not agreed(found):
        return False
    await ask(to, "forget", receiver, timeout_s=ATTEMPT_TIMEOUT_S)
    return True
