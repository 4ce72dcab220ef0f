"""Forgets the waiting events of a receiver: they are discarded because an operator asks for it."""

from actors.machine import commands as c
from actors.runtime.actor import Actor
from actors.runtime.discard import read_discarded_up_to, while_idle


async def forget(actor: Actor, by: str = "") -> int:
    """Discard the waiting events, clear failures, and record it and who asked; returns the number of events.

    Raises Unavailable.
    """
    async with while_idle(actor):
        position = actor.pending.posting.posted_to_max
        passed = await read_discarded_up_to(actor, position)
        discarded = passed.count + len(actor.state.open)
        actor.pending.discard(
            c.ForgetBacklog(position, passed.count, passed.source, passed.keys, by, passed.left_out)
        )
        index = actor.environment.recorder.index
    await actor.environment.confirmed_to(index)
    return discarded
