"""Discards the waiting events: the receiver's configuration is gone, or an operator asks for it.

Discarded events count as numbered: their numbers are the gap, their ids enter the dedup window, and the
highest source is that of the last copy. So a copy that comes late and an id that comes twice are duplicates,
as if the events had been delivered (`docs/decisions/discarded-events-and-numbering.md`).

Meanwhile the receiver is idle: attempts in flight are awaited, since their numbers may be unrecorded,
and nothing else is done before the fact is decided.

`remove` is for the actor, and `operator_actions.forget` for operators; both read what they discard by
`read_discarded_up_to`. Each of the other public functions is one rule, so that a mutant of the simulator can
disable it alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from actors.machine import commands as c
from actors.machine.numbering import Frontier, advance, is_duplicate, with_number
from actors.machine.state import State
from actors.runtime.environment import ActorEnvironment
from actors.runtime.live_state import LiveState
from actors.runtime.pending import Pending

READ_EVENTS_MAX = 1024
"""Number of waiting events that are read; if there are more, the oldest are only counted."""
READ_PAGE_EVENTS = 256


class StoppableActor(Protocol):
    """The actor whose events are discarded; while `hold_count` is not 0, it begins nothing."""

    receiver: str
    environment: ActorEnvironment
    live: LiveState
    pending: Pending
    hold_count: int

    @property
    def state(self) -> State:
        """The state as it is, confirmed or not."""
        ...

    async def until_attempt_ends(self) -> None:
        """Return when an attempt is over."""
        ...

    def wake(self) -> None:
        """Do the next steps."""
        ...


class DiscardedEvents(Struct, frozen=True):
    """The discarded events beyond the frontier.

    - `count`: how many there are.
    - `source`: the highest source so far.
    - `keys`: their keys that enter the dedup window, as many as fill it. With fewer, older ids would stay in
      the window for longer than it reaches.
    - `left_out`: how many numbers are left out beyond theirs.
    """

    count: int
    source: int
    keys: bytes
    left_out: int = 0


async def discard_removed(actor: StoppableActor) -> None:
    """Discard the waiting events of a receiver without a configuration. Raises Unavailable."""
    async with while_idle(actor):
        known = actor.environment.policies.removal(actor.receiver)
        removal = known if known is not None and known.revision > actor.state.removal else None
        position = await end_of_removed(actor, removal.at) if removal else actor.pending.posting.posted_to_max
        passed = await read_discarded_up_to(actor, position)
        revision = removal.revision if removal else 0
        actor.pending.discard(
            c.RemoveReceiver(position, passed.count, revision, passed.source, passed.keys, passed.left_out)
        )


@asynccontextmanager
async def while_idle(actor: StoppableActor) -> AsyncIterator[None]:
    """Keep the actor idle: nothing is in flight and nothing begins, so everything posted is recorded."""
    actor.hold_count += 1
    try:
        while actor.pending.in_flight:
            await actor.until_attempt_ends()
        # An attempt that was recorded and not made does not start any more, or is recorded again.
        actor.live.tokens.end_grant(actor.environment.clock.now(), actor.environment.epoch, used=False)
        yield
    finally:
        actor.hold_count -= 1
        actor.wake()


async def end_of_removed(actor: StoppableActor, removed_at: float) -> int:
    """The last event of the removed receiver. Later ones may be for a receiver that was put again.

    Events that an owner that vanished may have posted belong to the removed receiver in any case.
    """
    posted_to_max = actor.pending.posting.posted_to_max
    first = await actor.environment.backlog.first_since(actor.receiver, removed_at)
    if first is None:
        return posted_to_max
    return max(actor.state.frontier.position, actor.pending.posting.posted_to, min(posted_to_max, first - 1))


async def read_discarded_up_to(actor: StoppableActor, up_to: int) -> DiscardedEvents:
    """Read the events between the frontier and position `up_to`, again if the frontier moved meanwhile."""
    while True:
        frontier = actor.state.frontier
        found = await read_discarded(actor, frontier, up_to)
        if actor.environment.stopped:
            raise asyncio.CancelledError
        if actor.state.frontier is frontier:
            # Events that are gone from the stream cannot be read, but may have been posted.
            return replace(found, left_out=max(0, actor.pending.posting.unrecorded - found.count))


async def read_discarded(actor: StoppableActor, frontier: Frontier, up_to: int) -> DiscardedEvents:
    """Number all stored events as if they were delivered; of very many, only the last."""
    backlog, receiver, at = actor.environment.backlog, actor.receiver, frontier
    many = max(READ_EVENTS_MAX, 2 * frontier.size_at(up_to))
    counted = await count_between(actor, at.position, up_to)
    if counted > many:
        start = await _near_the_end(actor, at.position, up_to, many)
        # Nothing is known about the events in between, and the last ones fill the whole window.
        at = Frontier(position=start, source=frontier.source, size=frontier.size_at(up_to))
    before, end, keys = at.sequence, at.position, list[bytes]()
    while end < up_to and not actor.environment.stopped:
        page = await backlog.read(receiver, end, up_to, READ_PAGE_EVENTS)
        for event in page.events:
            if event.position <= up_to and not is_duplicate(at, event):
                at = advance(at, with_number(event, at.sequence + 1))
                keys.append(event.key)
        end = up_to if page.complete else page.events[-1].position if page.events else end
    fresh = at.sequence - before
    # The window may have grown on the way: then it holds fewer of their keys than it has room for.
    filling = b"".join(keys[-frontier.size_at(up_to) :])
    return DiscardedEvents(counted if counted > many else fresh, at.source, filling)


async def count_between(actor: StoppableActor, after: int, up_to: int) -> int:
    """Count the messages above `after` and up to `up_to`, as far as the answering replica knows."""
    backlog, receiver = actor.environment.backlog, actor.receiver
    beyond = await backlog.count(receiver, up_to)
    return await backlog.count(receiver, after) - beyond


async def _near_the_end(actor: StoppableActor, after: int, up_to: int, wanted: int) -> int:
    """A position above which there are `wanted` to twice as many messages up to `up_to`."""
    low, high = after, up_to
    while high - low > 1:
        middle = (low + high) // 2
        count = await count_between(actor, middle, up_to)
        if wanted <= count <= 2 * wanted:
            return middle
        if count < wanted:
            high = middle
        else:
            low = middle
    return low
