"""The pings of one receiver: POSTs of type `angarium.ping`, which have no number and take a token.

A ping is recorded before it is made: it leaves no unsettled event from which a later owner could tell that a
token was taken. An operator may ask for one. An offline receiver may get them in place of events, one at a
time; an owner that dies before the outcome of such a ping is recorded leaves a receiver that is still
offline, so the next owner makes another one.
"""

import logging
from collections.abc import Callable

from msgspec import Struct

from actors.configuration.policy import Policy
from actors.machine import commands as c
from actors.machine.bucket import GRANT_MAX_S
from actors.machine.event import Event
from actors.machine.outcome import INTERNAL, Failed, NotSent, Outcome
from actors.ports import Attempt
from actors.runtime.live_state import LiveState

log = logging.getLogger(__name__)


class BegunPing(Struct, frozen=True):
    """A ping that is recorded as the fact `index`, and may have taken a token."""

    policy: Policy
    index: int
    at: float
    limited: bool


def begin_ping(live: LiveState, policy: Policy, now: float) -> BegunPing:
    """Take a token for a ping and record it; the caller knows that there is one."""
    limited = live.bucket_at(now) is not None
    live.tokens.take(now, live.environment.epoch)
    live.tokens.set_aside += limited
    live.record(c.StartPing(), now)
    return BegunPing(policy, live.environment.recorder.index, now, limited)


async def make_ping(live: LiveState, begun: BegunPing) -> Outcome:
    """Make the ping once its record is confirmed; if that took too long, the token is given back."""
    environment = live.environment
    await environment.confirmed_to(begun.index)
    now = environment.clock.now()
    late = now > begun.at + GRANT_MAX_S
    if begun.limited:
        live.tokens.start_or_give_back(now, environment.epoch, used=not late)
    if late:
        return NotSent(why="it took too long to record the ping; try again")
    event = Event(
        position=0, id=f"ping_{environment.epoch}_{begun.index}", stored_at=now, type="angarium.ping",
        body=b'{"type":"angarium.ping"}',
    )  # fmt: skip
    attempt = Attempt(
        receiver=live.receiver, policy=begun.policy, event=event, sequence=None, ordinal=1,
        may_start=environment.within_lease, shapings=(), kind="ping",
    )  # fmt: skip
    try:
        return await environment.sender.send(attempt)
    except Exception as error:
        log.exception("attempt.broken", extra={"receiver": live.receiver, "trace_id": event.trace_id})
        return Failed(error=INTERNAL, detail=type(error).__name__, latency_ms=0.0)


class OfflinePinging:
    """The pings that a receiver gets in place of events, one at a time. `wake` is called after each."""

    __slots__ = ("_live", "_wake", "under_way")

    def __init__(self, live: LiveState, wake: Callable[[], None]) -> None:
        self._live = live
        self._wake = wake
        self.under_way = False

    def start(self, policy: Policy, now: float) -> None:
        """Start a ping; the caller knows that there is a token."""
        environment = self._live.environment
        # The attempt of an event that was recorded first waits again.
        self._live.tokens.end_grant(now, environment.epoch, used=False)
        self.under_way = True
        environment.attempt_started()
        environment.spawn(self._run(begin_ping(self._live, policy, now)))

    async def _run(self, begun: BegunPing) -> None:
        live, environment = self._live, self._live.environment
        try:
            outcome = await make_ping(live, begun)
            if not (environment.stopped or isinstance(outcome, NotSent)):
                live.record(c.RecordOutcome((), outcome, is_offline_ping=True), environment.clock.now())
        finally:
            self.under_way = False
            environment.attempt_ended()
        self._wake()
