"""A ping that an operator asks for: it takes a token, and works while the receiver is paused."""

import math

from actors.errors import ControlDenied
from actors.machine import commands as c
from actors.machine.bucket import take
from actors.machine.handshake.proof import is_verified
from actors.machine.outcome import Answered, Failed, NotSent
from actors.runtime.actor import Actor
from actors.runtime.eventless.pinging import begin_ping, make_ping
from actors.times_as_text import age_text


async def ping(actor: Actor) -> Answered | Failed:
    """Ping a receiver; raises ControlDenied if nothing may be sent to it."""
    environment, policy = actor.environment, actor.policy
    now = environment.clock.now()
    if policy is None:
        raise ControlDenied("misconfigured", f"{actor.receiver} has no valid configuration; put one")
    if not is_verified(actor.state, policy):
        raise ControlDenied("unverified", f"{actor.receiver} has not proved itself; verify it first")
    if actor.state.throttled_until > now:
        wait = age_text(math.ceil(actor.state.throttled_until - now))
        raise ControlDenied("throttled", f"{actor.receiver} is throttled for {wait} more")
    if not environment.may_start():
        raise ControlDenied("unavailable", "the shard is not ready at the moment; try again")
    if not environment.outage.may_try(actor.receiver, policy):
        raise ControlDenied("unavailable", "its node can connect to no host at the moment; try again later")
    bucket = actor.live.bucket_at(now)
    if bucket is not None and take(bucket) is None:
        raise ControlDenied("rate_limited", f"{actor.receiver} has no token left; try again later")
    actor.pinging += 1
    try:
        outcome = await make_ping(actor.live, begin_ping(actor.live, policy, now))
        if not (environment.stopped or isinstance(outcome, NotSent)):
            actor.live.record(c.RecordOutcome((), outcome), environment.clock.now())
    finally:
        actor.pinging -= 1
    actor.wake()
    if isinstance(outcome, NotSent):
        raise ControlDenied("unavailable", outcome.why)
    return outcome
