"""Receivers that get nothing now, and why: what holds an event that was begun and is not settled."""

import asyncio
from collections.abc import Collection

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.failures import NotDone
from angarium.operations.receivers.control_requests.state import state

ASKED_MAX = 100
"""Receivers whose owners are asked."""
ASKED_AT_ONCE = 16
MOVING = frozenset({"idle", "active"})
"""Phases in which an event is under way, or waits for others only."""


class HeldReceiver(Struct, frozen=True):
    """Why a receiver gets nothing, and what an operator has to do, if it does not end by itself."""

    why: str
    remedy: str | None


async def held_receivers(access: Access, receivers: Collection[str]) -> dict[str, HeldReceiver]:
    """The receivers among these that get nothing now, as far as their owners answer."""
    turn, found = asyncio.Semaphore(ASKED_AT_ONCE), dict[str, HeldReceiver]()

    async def ask(receiver: str) -> None:
        async with turn:
            live = await state(access, receiver)
        if not isinstance(live, NotDone) and live["phase"] not in MOVING:
            found[receiver] = HeldReceiver(live["why"], live.get("remedy"))

    await asyncio.gather(*map(ask, sorted(receivers)[:ASKED_MAX]))
    return found
