"""Removes a receiver, and with it what it has waiting."""

from collections.abc import Callable

from msgspec import Struct

from actors.ids import split_receiver
from angarium.connecting import Access
from angarium.operations.control.ask import WaitingEvents, backlog, until_gone
from angarium.operations.failures import operation
from angarium.operations.receivers.stored import confirmed, not_found
from streams.receivers import Receivers


class RemoveResult(Struct, frozen=True, kw_only=True):
    """True for `removed` where the receiver is gone, for `discarded` where all that waited is, too."""

    removed: bool
    discarded: bool = True


@operation
async def remove(
    to: Access, name: str, agreed: Callable[[WaitingEvents], bool] = lambda _: True
) -> RemoveResult:
    """Remove it; `agreed` is asked with how much waits, if anything does. Fails as not_found."""
    split_receiver(name)
    receivers = Receivers(to.js, to.names)
    if await receivers.get(name) is None:
        raise not_found(name)
    waiting = await backlog(to, name)
    if waiting.count and not agreed(waiting):
        return RemoveResult(removed=False)
    confirmed(name, await receivers.delete(name))
    return RemoveResult(removed=True, discarded=not waiting.count or await until_gone(to, name))
