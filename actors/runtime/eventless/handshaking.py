"""The handshakes of one receiver: each takes a token, is recorded, made, and recorded with its outcome.

It has no event, so a later owner could not tell from the waiting events that a token was taken: like a ping,
a handshake is recorded before it is made. An owner that dies before the outcome is recorded leaves a receiver
that has not proved itself, so the next owner makes another handshake.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec import Struct

from actors.configuration.policy import Policy
from actors.machine import commands as c
from actors.machine.bucket import GRANT_MAX_S
from actors.machine.event import Event
from actors.machine.handshake.proof import handshake_key
from actors.machine.outcome import INTERNAL, Failed, NotSent, Outcome
from actors.ports import Attempt
from actors.runtime.live_state import LiveState

HANDSHAKE_TYPE = "angarium.handshake"
log = logging.getLogger(__name__)


class _Begun(Struct, frozen=True):
    """A handshake that is recorded as the fact `index`; it is about the configuration of that moment."""

    policy: Policy
    index: int
    at: float
    limited: bool


class Handshaking:
    """The handshakes of one receiver, one at a time, the last at `begun_at`. `wake` is called after each."""

    __slots__ = ("_live", "_wake", "begun_at", "under_way")

    def __init__(self, live: LiveState, wake: Callable[[], None]) -> None:
        self._live = live
        self._wake = wake
        self.under_way = False
        self.begun_at = 0.0

    def start(self, policy: Policy, now: float) -> asyncio.Future[Outcome]:
        """Start a handshake; the caller knows that there is a token. The future ends with the shard."""
        live, environment = self._live, self._live.environment
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        limited = live.bucket_at(now) is not None
        live.tokens.take(now, environment.epoch)
        live.tokens.set_aside += limited
        self.under_way = True
        self.begun_at = now
        environment.attempt_started()
        live.record(c.StartHandshake(), now)
        environment.spawn(self._run(_Begun(policy, environment.recorder.index, now, limited), ended))
        return ended

    async def _run(self, begun: _Begun, ended: asyncio.Future[Outcome]) -> None:
        try:
            outcome = await self._make(begun)
            if not self._live.environment.stopped and not ended.done():
                ended.set_result(outcome)
        finally:
            self.under_way = False
            self._live.environment.attempt_ended()
            ended.cancel()
        self._wake()

    async def _make(self, begun: _Begun) -> Outcome:
        live, environment = self._live, self._live.environment
        await environment.confirmed_to(begun.index)
        now = environment.clock.now()
        late = now > begun.at + GRANT_MAX_S
        if begun.limited:
            live.tokens.start_or_give_back(now, environment.epoch, used=not late)
        if late:
            return NotSent(why="it took too long to record the handshake")
        outcome = await self._send(begun, now)
        if environment.stopped or isinstance(outcome, NotSent):
            return outcome
        limit = live.state.limit
        key = handshake_key(begun.policy)
        live.record(c.RecordHandshake(key, outcome, environment.epoch), environment.clock.now())
        if live.state.limit != limit:
            live.tokens.restore(live.state.limit, live.state.bucket)
        return outcome

    async def _send(self, begun: _Begun, now: float) -> Outcome:
        environment, receiver = self._live.environment, self._live.receiver
        event = Event(
            position=0, id=f"handshake_{environment.epoch}_{begun.index}", stored_at=now,
            type=HANDSHAKE_TYPE, body=b"",
        )  # fmt: skip
        attempt = Attempt(
            receiver=receiver, policy=begun.policy, event=event, sequence=None, ordinal=1,
            may_start=environment.within_lease, shapings=(), kind="handshake",
        )  # fmt: skip
        try:
            return await environment.sender.send(attempt)
        except Exception as error:
            log.exception("handshake.broken", extra={"receiver": receiver})
            return Failed(error=INTERNAL, detail=type(error).__name__, latency_ms=0.0)
