"""Discarding the events that wait: an operator asks (`forget`), or the receiver's configuration is gone.

Discarded events count as numbered: their numbers are the gap, their ids enter the dedup window, and the
highest source is that of the last copy. So a copy that comes late and an id that comes twice are repeats, as
they would be had the events been delivered (`docs/decisions/discarded-counts-as-numbered.md`).

Meanwhile the receiver stands still: attempts in flight are awaited, since their numbers may be on no record,
and nothing else is done before the fact is decided.

`forget` and `remove` are for the actor. The other public functions are rules: the simulator takes each out
by itself.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from actors.machine import commands as c
from actors.machine.numbering import Frontier, is_repeat, number, with_number

if TYPE_CHECKING:
    from actors.runtime.actor import Actor

READ_EVENTS_MAX = 1024
"""Events that are read at least, where so many wait: of more, the first are only counted."""
READ_PAGE_EVENTS = 256


class Passed(Struct, frozen=True):
    """The events that are discarded, those beyond the frontier.

    `count` numbers are left for them; `source` is the highest of all so far; `keys` enter the dedup window,
    as many as fill it: were there fewer, ids from before them would stay in it for longer than it reaches.
    """

    count: int
    source: int
    keys: bytes


async def forget(actor: "Actor") -> int:
    """Discard what waits and clear failures, on record; returns how many events that were.

    Raises Unavailable.
    """
    async with standing_still(actor):
        position = actor.pending.taken_to
        passed = await _passed(actor, position)
        discarded = passed.count + len(actor.state.open)
        actor.pending.discard(c.ForgetBacklog(position, passed.count, passed.source, passed.keys))
        index = actor.host.recorder.index
    await actor.host.confirmed_to(index)
    return discarded


async def remove(actor: "Actor") -> None:
    """Discard the waiting events of a receiver without a configuration. Raises Unavailable."""
    async with standing_still(actor):
        known = actor.host.policies.removal(actor.receiver)
        removal = known if known is not None and known.revision > actor.state.removal else None
        position = await removed_to(actor, removal.at) if removal else actor.pending.taken_to
        passed = await _passed(actor, position)
        revision = removal.revision if removal else 0
        actor.pending.discard(c.RemoveReceiver(position, passed.count, revision, passed.source, passed.keys))


@asynccontextmanager
async def standing_still(actor: "Actor") -> AsyncIterator[None]:
    """Keep the actor still: nothing is in flight or begun, so nothing is posted but what is on record."""
    actor.hold_count += 1
    try:
        while actor.pending.in_flight:
            await actor.landing()
        # What was recorded and not made starts no more, or is recorded again.
        actor.live.tokens.end_grant(actor.host.clock.now(), actor.host.epoch, used=False)
        yield
    finally:
        actor.hold_count -= 1
        actor.wake()


async def removed_to(actor: "Actor", removed_at: float) -> int:
    """Find the last event of the removed receiver. Later ones may be for one that was put again.

    What an owner that vanished may have posted was the removed one's in any case.
    """
    taken_to = actor.pending.taken_to
    first = await actor.host.backlog.first_since(actor.receiver, removed_at)
    if first is None:
        return taken_to
    return max(actor.state.frontier.position, actor.pending.posted_to, min(taken_to, first - 1))


async def _passed(actor: "Actor", to: int) -> Passed:
    """Read what lies between the frontier and position `to`, again if the frontier moved meanwhile."""
    while True:
        frontier = actor.state.frontier
        found = await read_passed(actor, frontier, to)
        if actor.host.stopped:
            raise asyncio.CancelledError
        if actor.state.frontier is frontier:
            # What is gone from the stream cannot be read, but may have been posted.
            return Passed(max(found.count, actor.pending.unrecorded), found.source, found.keys)


async def read_passed(actor: "Actor", frontier: Frontier, to: int) -> Passed:
    """Number all that was stored, as if it were given; of very many, the last of them."""
    backlog, receiver, at = actor.host.backlog, actor.receiver, frontier
    many = max(READ_EVENTS_MAX, 2 * frontier.size_at(to))
    counted = await count_between(actor, at.position, to)
    if counted > many:
        start = await _near_the_end(actor, at.position, to, many)
        # Of what lies in between nothing is known, and the window is all theirs.
        at = Frontier(position=start, source=frontier.source, size=frontier.size_at(to))
    before, end, keys = at.sequence, at.position, list[bytes]()
    while end < to and not actor.host.stopped:
        batch = await backlog.read(receiver, end, to, READ_PAGE_EVENTS)
        for event in batch.events:
            if event.position <= to and not is_repeat(at, event):
                at = number(at, with_number(event, at.sequence + 1))
                keys.append(event.key)
        end = to if batch.complete else batch.events[-1].position if batch.events else end
    fresh = at.sequence - before
    # The window may have grown on the way: then it holds fewer of them than it has room for.
    filling = b"".join(keys[-frontier.size_at(to) :])
    return Passed(counted if counted > many else fresh, at.source, filling)


async def count_between(actor: "Actor", after: int, to: int) -> int:
    """Count the messages above `after` and up to `to`, as far as some replica knows."""
    backlog, receiver = actor.host.backlog, actor.receiver
    beyond = await backlog.count(receiver, to)
    return await backlog.count(receiver, after) - beyond


async def _near_the_end(actor: "Actor", after: int, to: int, wanted: int) -> int:
    """A position above which lie `wanted` messages up to `to`, or up to twice as many."""
    low, high = after, to
    while high - low > 1:
        middle = (low + high) // 2
        count = await count_between(actor, middle, to)
        if wanted <= count <= 2 * wanted:
            return middle
        if count < wanted:
            high = middle
        else:
            low = middle
    return low
