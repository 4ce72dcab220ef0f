"""Resumes a receiver: it no longer waits because it failed, asked for a pause, or was disabled."""

from actors.machine import commands as c
from actors.runtime.actor import Actor


async def resume(actor: Actor, by: str = "") -> None:
    """End disablement, backoff and throttling for `by`; return once that is recorded."""
    environment = actor.environment
    actor.live.record(c.ResumeReceiver(by), environment.clock.now())
    index = environment.recorder.index
    actor.wake()
    await environment.confirmed_to(index)
