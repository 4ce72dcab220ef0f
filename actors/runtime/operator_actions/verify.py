"""Verify: an operator has a receiver prove itself now, even if it is paused or has proved itself before."""

import asyncio
import math

from actors.errors import ControlDenied
from actors.machine.bucket import take
from actors.machine.handshake.proof import handshake_key
from actors.machine.outcome import Answered, Failed, NotSent
from actors.runtime.actor import Actor
from actors.times_as_text import age_text

VERIFY_EVERY_S = 1.0
"""The shortest time between a handshake and one that is asked for: the URL may be that of a stranger."""


async def verify(actor: Actor) -> Answered | Failed:
    """Make a handshake, and return once its outcome is recorded; raises ControlDenied if none may be made."""
    environment, policy, receiver = actor.environment, actor.policy, actor.receiver
    now = environment.clock.now()
    if policy is None:
        raise ControlDenied("misconfigured", f"{receiver} has no valid configuration; put one")
    if policy.handshake == "none":
        remedy = 'set its "handshake" to "hmac" or "cloudevents"'
        raise ControlDenied("no_handshake", f"{receiver} is configured without a handshake; {remedy}")
    if actor.state.throttled_until > now:
        wait = age_text(math.ceil(actor.state.throttled_until - now))
        raise ControlDenied("throttled", f"{receiver} is throttled for {wait} more")
    if not environment.all_know_handshakes():
        raise ControlDenied("older_nodes", "a node of an older version knows no handshakes; upgrade it first")
    if not environment.may_start():
        raise ControlDenied("unavailable", "the shard is not ready at the moment; try again")
    if not environment.outage.may_try(receiver, policy):
        raise ControlDenied("unavailable", "its node can connect to no host at the moment; try again later")
    if actor.handshaking.under_way or actor.adopted_policy is not policy:
        raise ControlDenied("unavailable", f"{receiver} is working at this moment; try again")
    if now < actor.handshaking.begun_at + VERIFY_EVERY_S:
        raise ControlDenied("rate_limited", f"{receiver} was asked a moment ago; try again in a second")
    bucket = actor.live.bucket_at(now)
    if bucket is not None and take(bucket) is None:
        raise ControlDenied("rate_limited", f"{receiver} has no token left; try again later")
    outcome = await asyncio.shield(actor.handshaking.start(policy, now))
    if isinstance(outcome, NotSent):
        raise ControlDenied("unavailable", outcome.why)
    if not environment.stopped:
        await environment.confirmed_to(environment.recorder.index)
    if actor.policy is None or handshake_key(actor.policy) != handshake_key(policy):
        why = f"the configuration of {receiver} was changed during the handshake; try again"
        raise ControlDenied("unavailable", why)
    return outcome
