"""Steps that worlds of one receiver share: an operator asks, and the journal holds back or lets go."""

import asyncio
from collections.abc import Awaitable, Callable

from actors.errors import ControlDenied, Unavailable
from actors.runtime.actor import Actor
from tests.unit.worlds.shard import Journal


class OperatorRequests:
    """Requests that are under way; each may be refused, and ends with the owner at the latest."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()

    def ask(self, action: Callable[[Actor], Awaitable[object]], actor: Actor) -> None:
        """Ask for an action, if the actor is loaded."""
        if actor.loaded:
            task = asyncio.get_running_loop().create_task(_asked(action, actor))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)


async def _asked(action: Callable[[Actor], Awaitable[object]], actor: Actor) -> None:
    try:
        await action(actor)
    except (ControlDenied, Unavailable, asyncio.CancelledError):
        return


def hold_or_let_go(journal: Journal) -> None:
    if journal.held:
        journal.let_go()
    else:
        journal.held = True
