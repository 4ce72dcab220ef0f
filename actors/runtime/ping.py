"""A ping: a POST of type `angarium.ping`, without a number, that spends a token and works while paused."""

from actors.errors import AngariumError
from actors.machine import commands as c
from actors.machine.bucket import GRANT_S, take
from actors.machine.event import Event
from actors.machine.outcome import Answered, Failed, NotSent
from actors.policy import Policy
from actors.ports import Attempt
from actors.runtime.shell import Shell


class Refusal(AngariumError):
    """A control request that cannot be granted; `code` is one token, the text says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def ping(shell: Shell) -> Answered | Failed:
    """Ping a receiver; raises Refusal where nothing may go to it.

    The ping is recorded before it is made, since it leaves no unsettled event behind from which a later owner
    could tell that a token was spent.
    """
    host, policy = shell.host, shell.policy
    now = host.clock.now()
    if policy is None:
        raise Refusal("misconfigured", f"{shell.receiver} has no valid configuration; put one")
    if shell.state.throttled_until > now:
        wait_s = shell.state.throttled_until - now
        raise Refusal("throttled", f"{shell.receiver} asked to be left alone for {wait_s:.0f} s more")
    if not host.may_start():
        raise Refusal("unavailable", "the shard is not in order at the moment; try again")
    bucket = shell.bucket_at(now)
    limited = bucket is not None
    if bucket is not None:
        left = take(bucket)
        if left is None:
            raise Refusal("rate_limited", f"{shell.receiver} has no token left; try again later")
        shell.bucket = left
    shell.set_aside += limited
    shell.pinging += 1
    try:
        return await _record_and_send(shell, policy, now, limited)
    finally:
        shell.pinging -= 1


async def _record_and_send(shell: Shell, policy: Policy, now: float, limited: bool) -> Answered | Failed:
    host = shell.host
    shell.record(c.StartPing(), now)
    index = host.recorder.index
    await host.confirmed_to(index)
    recorded_at, now = now, host.clock.now()
    late = now > recorded_at + GRANT_S
    if limited:
        shell.start_or_give_back(now, used=not late)
    if late:
        shell.wake()
        raise Refusal("unavailable", "it took too long to record the ping; try again")
    event = Event(
        position=0, id=f"ping_{host.epoch}_{index}", stored_at=now, type="angarium.ping",
        body=b'{"type":"angarium.ping"}',
    )  # fmt: skip
    outcome = await shell.send(Attempt(
        receiver=shell.receiver, policy=policy, event=event, sequence=None, number=1,
        may_start=host.within_lease,
    ))  # fmt: skip
    if isinstance(outcome, NotSent):
        raise Refusal("unavailable", outcome.why)
    if not host.stopped:
        shell.record(c.RecordOutcome(None, outcome), host.clock.now())
        shell.wake()
    return outcome
