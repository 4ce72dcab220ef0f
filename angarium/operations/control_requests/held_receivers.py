"""Receivers that get nothing now, and why: what holds an event that was begun and is not settled."""

from collections.abc import Collection

from msgspec import Struct

from angarium.access import Access
from angarium.operations.control_requests.inspection import inspect_receiver
from angarium.operations.failures import NotDone
from streams.bounded_gather import gather_bounded

ASKED_MAX = 100
"""Receivers whose owners are asked."""
OWNERS_ASKED_AT_ONCE = 16
MOVING = frozenset({"idle", "active"})
"""Phases in which an event is under way, or waits for others only."""


class HeldReceiver(Struct, frozen=True):
    """Why a receiver gets nothing, and what an operator has to do, if it does not end by itself."""

    why: str
    remedy: str | None


async def held_receivers(access: Access, receivers: Collection[str]) -> dict[str, HeldReceiver]:
    """Which of these receivers get nothing now; receivers whose owners do not answer are left out."""
    asked = sorted(receivers)[:ASKED_MAX]
    states = await gather_bounded(asked, lambda each: inspect_receiver(access, each), OWNERS_ASKED_AT_ONCE)
    return {
        receiver: HeldReceiver(live["why"], live.get("remedy"))
        for receiver, live in zip(asked, states, strict=True)
        if not isinstance(live, NotDone) and live["phase"] not in MOVING
    }
