"""Discards what waits for a receiver, on record, and clears its failures."""

from collections.abc import Callable

from angarium.connecting import Access
from angarium.operations.control.ask import ATTEMPT_TIMEOUT_S, WaitingEvents, ask, backlog
from angarium.operations.failures import operation


@operation
async def forget(to: Access, receiver: str, agreed: Callable[[WaitingEvents], bool] = lambda _: True) -> bool:
    """Discard it; `agreed` is asked with how much that is, if anything waits. False: it was not agreed to.

    An attempt that is under way is awaited.
    """
    found = await backlog(to, receiver)
    if found.count and not agreed(found):
        return False
    await ask(to, "forget", receiver, timeout_s=ATTEMPT_TIMEOUT_S)
    return True
