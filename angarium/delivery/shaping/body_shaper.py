"""Shapes the bodies of an attempt, large ones in a thread, so that no body holds up the loop."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from actors.configuration.transform import Shaping, Transform, Unshapeable
from actors.ids import tenant_of
from actors.machine.event import Event
from actors.machine.outcome import NotSent
from actors.ports import Attempt, BatchAttempt, EventShaping
from angarium.delivery.connections.fair_slots import FairSlots
from angarium.delivery.shaping.shape import shape

PORTION_MAX = 256
"""Weight of bodies that are shaped in the loop, or in one turn of the thread, which costs 0.1 ms by itself.

A body of more than this has a turn for itself alone.
"""
BYTES_A_WEIGHT = 64
POINTERS_A_WEIGHT = 8

_Pair = tuple[Event, EventShaping]


class _Portion(Struct):
    """Events whose bodies are shaped at once, each with its shaping, and their weight together."""

    pairs: list[_Pair] = field(default_factory=list)
    weight: int = 0


class BodyShaper:
    """Shapes bodies before they are formatted and signed.

    One thread at a time, since two would share the interpreter and be no quicker. Tenants take turns, and
    within a tenant its receivers. A turn is for one body, or for some small ones of a batch.
    """

    def __init__(self) -> None:
        self._slots = FairSlots(1, 1)

    async def shaped(self, attempt: Attempt | BatchAttempt) -> Attempt | BatchAttempt | NotSent:
        """The attempt with shaped bodies; a `NotSent` that names the events whose bodies cannot be shaped."""
        events = tuple(event for event, _ in attempt.numbered)
        portions = list(_portions(list(zip(events, attempt.shapings, strict=True))))
        if len(portions) == 1 and portions[0].weight <= PORTION_MAX:
            found = shape_bodies(events, attempt.shapings)
        else:
            bodies = list[bytes | Unshapeable]()
            for portion in portions:
                bodies += await self._in_turn(attempt.receiver, portion.pairs)
            found = _with_bodies(events, bodies)
        if isinstance(found, NotSent):
            return found
        match attempt:
            case Attempt():
                return replace(attempt, event=found[0], shapings=())
            case BatchAttempt():
                return replace(attempt, events=found, shapings=())
            case _:
                assert_never(attempt)

    async def _in_turn(self, receiver: str, pairs: Sequence[_Pair]) -> list[bytes | Unshapeable]:
        tenant = tenant_of(receiver)
        waiter = self._slots.enter(tenant, receiver)
        try:
            await waiter.future
            return await asyncio.to_thread(_bodies, pairs)
        finally:
            self._slots.leave(tenant, waiter)


def shape_bodies(
    events: Sequence[Event], shapings: Sequence[EventShaping]
) -> tuple[Event, ...] | NotSent:  # fmt: skip
    """The events with shaped bodies, at once; a `NotSent` that names those that cannot be shaped."""
    if not shapings:
        return tuple(events)
    return _with_bodies(events, _bodies(list(zip(events, shapings, strict=True))))


def _portions(pairs: Sequence[_Pair]) -> Iterator[_Portion]:
    """Yield the events in their order, as many at once as one turn is for."""
    portion = _Portion()
    for event, shaping in pairs:
        weight = _weight(event.body, shaping.transform) if isinstance(shaping, Shaping) else 0
        if portion.pairs and portion.weight + weight > PORTION_MAX:
            yield portion
            portion = _Portion()
        portion.pairs.append((event, shaping))
        portion.weight += weight
    yield portion


def _weight(body: bytes, transform: Transform) -> int:
    """A measure of the time that the body may take: its values and length, by the lists and pointers."""
    values = 1 + len(body) // BYTES_A_WEIGHT + body.count(b",") + body.count(b"{") + body.count(b"[")
    lists = transform.keep or (), transform.drop, transform.pseudonymize
    return values * (sum(map(bool, lists)) + sum(map(len, lists)) // POINTERS_A_WEIGHT)


def _bodies(pairs: Sequence[_Pair]) -> list[bytes | Unshapeable]:
    return [
        event.body if shaping is None else shape(event.body, event.region, shaping)
        for event, shaping in pairs
    ]  # fmt: skip


def _with_bodies(
    events: Sequence[Event], bodies: Sequence[bytes | Unshapeable]
) -> tuple[Event, ...] | NotSent:  # fmt: skip
    """The events with these bodies; a `NotSent` that names those that have none."""
    shaped, problems = list[Event](), dict[int, str]()
    for event, body in zip(events, bodies, strict=True):
        if isinstance(body, Unshapeable):
            problems[event.position] = body.why
        else:
            shaped.append(replace(event, body=body))
    if problems:
        return NotSent(
            why=f"a body cannot be shaped: {next(iter(problems.values()))}", unshapeable=tuple(problems)
        )
    return tuple(shaped)
