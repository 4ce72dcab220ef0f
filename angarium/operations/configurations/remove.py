"""Removes a receiver, together with its waiting events."""

from collections.abc import Callable

from msgspec import Struct

from actors.ids import split_receiver
from angarium.access import Access
from angarium.operations.configurations.proposal import check_revision
from angarium.operations.configurations.stored import not_found, require_stored
from angarium.operations.control_requests.ask import WaitingEvents, backlog, until_gone
from angarium.operations.failures import operation


class RemoveResult(Struct, frozen=True, kw_only=True):
    """The result of a removal.

    - `removed`: the receiver is gone.
    - `discarded`: all its waiting events are gone, too.
    - `waiting`: how many events waited.
    """

    removed: bool
    discarded: bool = True
    waiting: WaitingEvents = WaitingEvents(0, certain=True)


@operation
async def remove_receiver(
    access: Access,
    name: str,
    agreed: Callable[[WaitingEvents], bool] = lambda _: True,
    *,
    revision: int | None = None,
) -> RemoveResult:
    """Remove a receiver (only that `revision`, if given); `agreed` is asked before.

    Fails as not_found and as a conflict.
    """
    split_receiver(name)
    configurations = access.configurations
    found = await configurations.get(name)
    if found is None:
        raise not_found(name)
    check_revision(name, found, revision)
    waiting = await backlog(access, name)
    if not agreed(waiting):
        return RemoveResult(removed=False, waiting=waiting)
    access.admit_change(name)
    require_stored(name, await configurations.delete(name, revision))
    gone = not waiting.count or await until_gone(access, name)
    return RemoveResult(removed=True, discarded=gone, waiting=waiting)
