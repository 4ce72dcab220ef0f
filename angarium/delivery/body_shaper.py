"""Shapes the bodies of an attempt, large ones in a thread, so that no body holds up the loop."""

import asyncio
from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from actors.configuration.transform import Shaping
from actors.ids import tenant_of
from actors.machine.event import Event
from actors.machine.outcome import NotSent
from actors.ports import Attempt, BatchAttempt
from angarium.delivery.connections.fair_slots import FairSlots
from angarium.delivery.shaping import Unshapeable, shape

IN_THE_LOOP_MAX = 256
"""Values of bodies, and 256 bytes of them each, that are shaped in the loop. A thread costs 0.1 ms."""


class BodyShaper:
    """Shapes bodies before they are formatted and signed.

    One thread at a time, since two would share the interpreter and be no quicker. Tenants take turns, and
    within a tenant its receivers.
    """

    def __init__(self) -> None:
        self._slots = FairSlots(1, 1)

    async def shaped(self, attempt: Attempt | BatchAttempt) -> Attempt | BatchAttempt | NotSent:
        """The attempt with shaped bodies; a `NotSent` that names the events whose bodies cannot be shaped."""
        events = tuple(event for event, _ in attempt.numbered)
        shaped = [each.body for each, shaping in zip(events, attempt.shapings, strict=True) if shaping]
        if sum(len(body) // 256 + body.count(b",") for body in shaped) <= IN_THE_LOOP_MAX:
            found = shape_bodies(events, attempt.shapings)
        else:
            found = await self._in_turn(attempt.receiver, events, attempt.shapings)
        if isinstance(found, NotSent):
            return found
        match attempt:
            case Attempt():
                return replace(attempt, event=found[0], shapings=())
            case BatchAttempt():
                return replace(attempt, events=found, shapings=())
            case _:
                assert_never(attempt)

    async def _in_turn(
        self, receiver: str, events: Sequence[Event], shapings: Sequence[Shaping | None]
    ) -> tuple[Event, ...] | NotSent:
        tenant = tenant_of(receiver)
        waiter = self._slots.enter(tenant, receiver)
        try:
            await waiter.future
            return await asyncio.to_thread(shape_bodies, events, shapings)
        finally:
            self._slots.leave(tenant, waiter)


def shape_bodies(
    events: Sequence[Event], shapings: Sequence[Shaping | None]
) -> tuple[Event, ...] | NotSent:  # fmt: skip
    """The events with shaped bodies; a `NotSent` that names those that cannot be shaped."""
    if not shapings:
        return tuple(events)
    shaped, problems = list[Event](), dict[int, str]()
    for event, shaping in zip(events, shapings, strict=True):
        body = event.body if shaping is None else shape(event.body, event.region, shaping)
        if isinstance(body, Unshapeable):
            problems[event.position] = body.why
        else:
            shaped.append(replace(event, body=body))
    if problems:
        return NotSent(
            why=f"a body cannot be shaped: {next(iter(problems.values()))}", unshapeable=tuple(problems)
        )
    return tuple(shaped)
