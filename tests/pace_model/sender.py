"""A sender: the product's rules for tokens, retries, backoff and pauses, with a rule that learns.

Bucket, backoff, `Retry-After` and the meaning of answers are the product's own functions. What the product
keeps for each event and for the receiver is kept here in the same way, without a journal.
"""

import heapq
from collections import deque
from random import Random

from msgspec import Struct

from actors.configuration.policy import Adaptive
from actors.machine.backoff import backoff_s
from actors.machine.bucket import Bucket, RateLimit, next_token_at, refill, take
from actors.machine.decide import FAILURES_IN_A_ROW_MAX
from actors.machine.outcome import Answered, Failed, Verdict, judge, retry_after_s
from actors.machine.pace.pace import Pace, PaceLimits, PaceRule
from actors.machine.scheduling.learnt_pace import DUE_WITHIN_S
from actors.machine.state import OPEN_MAX
from actors.memory.pace_memory import PaceMemory
from tests.pace_model.receivers import Headers, Plant
from tests.pace_model.timeline import Timeline

NEVER = float("inf")
LISTENING = Adaptive()


class SenderProfile(Struct, frozen=True):
    """The configuration of a sender that never runs out of events, as far as its pace depends on it."""

    strict: bool = False
    concurrency: int = 64
    rate: RateLimit = RateLimit(100.0, 20)
    timeout_s: float = 15.0
    base_s: float = 2.0
    cap_s: float = 3600.0


class CountsBySecond:
    """Counts for each second of a trial, and the number of facts about the pace."""

    def __init__(self, length_s: int) -> None:
        self.attempts = [0] * (length_s + 1)
        self.delivered = [0] * (length_s + 1)
        self.refused = [0] * (length_s + 1)
        self.facts = 0


class _Attempt:
    """One attempt in flight, and how often its event failed before."""

    def __init__(self, failures: int, at: float) -> None:
        self.failures, self.at, self.over = failures, at, False


class Sender:
    """The actor of one receiver, at work against a plant from `start` on."""

    def __init__(
        self,
        timeline: Timeline,
        plant: Plant,
        profile: SenderProfile,
        rule: PaceRule,
        rng: Random,
        length_s: int,
    ) -> None:
        self._timeline, self._plant, self._profile, self._rule, self._rng = (
            timeline,
            plant,
            profile,
            rule,
            rng,
        )
        self.tally = CountsBySecond(length_s)
        self.pace = Pace()
        self._pace_memory = PaceMemory()
        self._bucket = Bucket(float(profile.rate.burst), 0.0, 0)
        self._in_flight = 0
        self._deadlines = deque[_Attempt]()
        self._retries: list[tuple[float, int, int]] = []
        self._count = 0
        self._throttled_until = self._backoff_until = 0.0
        self._throttles = self._failures_in_a_row = 0
        self._wake_at = NEVER

    def start(self) -> None:
        """Send what may be sent now, and plan when to continue."""
        now = self._timeline.now
        limits = self._rule.limits(self.pace, now)
        ready_at = max(self._throttled_until, self._backoff_until, limits.resumes_at)
        if now < ready_at:
            self._wake(ready_at)
            return
        at_once = self._at_once(limits)
        while self._in_flight < at_once:
            due = bool(self._retries) and self._retries[0][0] <= now
            blocked = self._profile.strict and bool(self._retries)
            if not due and (blocked or self.open_events >= OPEN_MAX):
                if self._retries:
                    self._wake(self._retries[0][0])
                return
            if not self._take(limits, now):
                return
            self._send(heapq.heappop(self._retries)[2] if due else 0)
        if at_once == limits.in_flight:
            self._pace_memory.reach_limit()

    @property
    def open_events(self) -> int:
        """The number of events that have been tried, or are being tried, and are not delivered."""
        return self._in_flight + len(self._retries)

    def take_over(self) -> None:
        """Continue as another owner would: with the recorded pace, and without what was only measured."""
        self._pace_memory = PaceMemory(self._pace_memory.paced_at)

    def _at_once(self, limits: PaceLimits) -> int:
        if self._profile.strict or self._failures_in_a_row >= FAILURES_IN_A_ROW_MAX:
            return 1
        return min(self._profile.concurrency, limits.in_flight or self._profile.concurrency)

    def _take(self, limits: PaceLimits, now: float) -> bool:
        """True if a token could be taken and is due; if not, a wake-up is planned for that time."""
        rate, learnt = self._profile.rate, limits.per_second
        if learnt is not None and now < (due_at := self._pace_memory.paced_at + 1 / learnt):
            # A rate that grows makes it due sooner, as in `learnt_pace`.
            self._pace_memory.reach_limit()
            self._wake(min(due_at, now + DUE_WITHIN_S))
            return False
        bucket = refill(self._bucket, rate, now, 0)
        taken = take(bucket)
        self._bucket = taken or bucket
        if taken is None:
            self._wake(next_token_at(bucket, rate))
        elif learnt is not None or self._pace_memory.is_paced:
            self._bucket = Bucket(min(1.0, taken.tokens), taken.at, taken.epoch)
        return taken is not None

    def _wake(self, at: float) -> None:
        if at < self._wake_at:
            self._wake_at = at
            self._timeline.plan(at, self._woken, at)

    def _woken(self, at: float) -> None:
        if at == self._wake_at:
            self._wake_at = NEVER
            self.start()

    def _send(self, failures: int) -> None:
        now = self._timeline.now
        attempt = _Attempt(failures, now)
        self._in_flight += 1
        self.tally.attempts[int(now)] += 1
        self._pace_memory.start(now, self._in_flight, self._rule.limits(self.pace, now).per_second)
        self._deadlines.append(attempt)
        if len(self._deadlines) == 1:
            self._timeline.plan(now + self._profile.timeout_s, self._time_out)
        self._plant.receive(lambda status, headers: self._answered(attempt, status, headers))

    def _time_out(self) -> None:
        now, timeout_s = self._timeline.now, self._profile.timeout_s
        while self._deadlines and (
            self._deadlines[0].over or self._deadlines[0].at + timeout_s <= now + 1e-9
        ):
            attempt = self._deadlines.popleft()
            if not attempt.over:
                attempt.over = True
                self._ended(attempt, Failed(error="timeout", detail="", latency_ms=timeout_s * 1000))
        if self._deadlines:
            self._timeline.plan(self._deadlines[0].at + timeout_s, self._time_out)

    def _answered(self, attempt: _Attempt, status: int, headers: Headers) -> None:
        if not attempt.over:
            attempt.over = True
            latency_ms = (self._timeline.now - attempt.at) * 1000
            self._ended(attempt, Answered(status=status, latency_ms=latency_ms, headers=headers))

    def _ended(self, attempt: _Attempt, outcome: Answered | Failed) -> None:
        now, profile = self._timeline.now, self._profile
        self._in_flight -= 1
        second = int(now)
        match judge(outcome, now):
            case Verdict.DELIVERED:
                self.tally.delivered[second] += 1
                self._throttles = self._failures_in_a_row = 0
                self._backoff_until = 0.0
            case Verdict.THROTTLED if isinstance(outcome, Answered):
                self.tally.refused[second] += 1
                if now >= self._throttled_until:
                    self._throttles += 1
                wait_s = retry_after_s(outcome, now) or self._backoff_s(self._throttles)
                self._throttled_until = max(self._throttled_until, now + wait_s)
                self._retry(now, attempt.failures)
            case _:
                if isinstance(outcome, Failed) or outcome.status == 503:
                    self.tally.refused[second] += 1
                failures = attempt.failures + 1
                self._retry(now + self._backoff_s(failures), failures)
                if not profile.strict and now >= self._backoff_until:
                    self._failures_in_a_row += 1
                    in_a_row = self._failures_in_a_row - FAILURES_IN_A_ROW_MAX
                    self._backoff_until = now + self._backoff_s(in_a_row + 1) if in_a_row >= 0 else 0.0
        self._learn(outcome)
        self.start()

    def _learn(self, outcome: Answered | Failed) -> None:
        now, pace = self._timeline.now, self.pace
        resumes_at = max(self._throttled_until, self._backoff_until)
        for observed in self._pace_memory.end(LISTENING, outcome, now, resumes_at):
            pace = self._rule.learn(pace, observed, now)
        if pace is not self.pace:
            self.pace = pace
            self._pace_memory.recorded(now)
            self.tally.facts += 1

    def _backoff_s(self, failures: int) -> float:
        return backoff_s(self._profile.base_s, self._profile.cap_s, failures, self._rng.random())

    def _retry(self, at: float, failures: int) -> None:
        self._count += 1
        heapq.heappush(self._retries, (at, self._count, failures))
