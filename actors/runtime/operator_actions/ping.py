"""A ping: a POST of type `angarium.ping` that has no number, takes a token, and works while paused."""

import math

from actors.configuration.policy import Policy
from actors.errors import ControlDenied
from actors.machine import commands as c
from actors.machine.bucket import GRANT_MAX_S, take
from actors.machine.event import Event
from actors.machine.handshake.proof import is_verified
from actors.machine.outcome import Answered, Failed, NotSent
from actors.ports import Attempt
from actors.runtime.actor import Actor
from actors.times_as_text import age_text


async def ping(actor: Actor) -> Answered | Failed:
    """Ping a receiver; raises ControlDenied if nothing may be sent to it.

    The ping is recorded before it is made: it leaves no unsettled event from which a later owner could tell
    that a token was taken.
    """
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
    tokens, bucket = actor.live.tokens, actor.live.bucket_at(now)
    limited = bucket is not None
    if bucket is not None:
        left = take(bucket)
        if left is None:
            raise ControlDenied("rate_limited", f"{actor.receiver} has no token left; try again later")
        tokens.bucket = left
    tokens.set_aside += limited
    actor.pinging += 1
    try:
        return await _record_and_send(actor, policy, now, limited)
    finally:
        actor.pinging -= 1


async def _record_and_send(actor: Actor, policy: Policy, now: float, limited: bool) -> Answered | Failed:
    environment = actor.environment
    actor.live.record(c.StartPing(), now)
    index = environment.recorder.index
    await environment.confirmed_to(index)
    recorded_at, now = now, environment.clock.now()
    late = now > recorded_at + GRANT_MAX_S
    if limited:
        actor.live.tokens.start_or_give_back(now, environment.epoch, used=not late)
    if late:
        actor.wake()
        raise ControlDenied("unavailable", "it took too long to record the ping; try again")
    event = Event(
        position=0, id=f"ping_{environment.epoch}_{index}", stored_at=now, type="angarium.ping",
        body=b'{"type":"angarium.ping"}',
    )  # fmt: skip
    attempt = Attempt(
        receiver=actor.receiver, policy=policy, event=event, sequence=None, ordinal=1,
        may_start=environment.within_lease, shapings=(), kind="ping",
    )  # fmt: skip
    try:
        outcome = await environment.sender.send(attempt)
    except Exception as error:
        outcome = actor.internal_failure(attempt, error)
    if isinstance(outcome, NotSent):
        raise ControlDenied("unavailable", outcome.why)
    if not environment.stopped:
        actor.live.record(c.RecordOutcome((), outcome), environment.clock.now())
        actor.wake()
    return outcome
