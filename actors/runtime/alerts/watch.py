"""The watch over the alerts of one shard's receivers: has them judged, and publishes the events about them.

Every few seconds it judges all actors in memory that are parked, or whose alerts may change by themselves;
passing the others costs a comparison. Nothing is done for each delivery. Every receiver whose alerts have to
change, or to be published, is in memory, also after a takeover (`State.may_change_alerts`). How many alerts
change in one round is bounded (`turns`).

An event about an alert is published only when its fact is confirmed, after those before it of the same
receiver, and the state owes it until it is recorded as published. So a new owner publishes it again if it
cannot know; its id is the same.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from actors.aligned_timers import next_tick
from actors.configuration.policy import NO_ALERT_SETTINGS, AlertLimits, AlertSettings
from actors.errors import Unavailable
from actors.machine import commands as c
from actors.machine.alerts.judging import alert_changes, behind_count, is_raised, last_raised_at
from actors.ports import AlertWriter, Clock, Recorder
from actors.runtime.actor import Actor
from actors.runtime.alerts.turns import AlertTurns

JUDGE_EVERY_S = 5.0
PASSED_IN_TURN_MAX = 1000
"""Actors that are passed before other tasks have a turn; most of them take less than a microsecond."""
JUDGED_IN_TURN_MAX = 100
"""Receivers that are judged before other tasks have a turn; that many take about a millisecond."""
COUNTS_IN_A_ROUND_MAX = 32
"""Receivers whose waiting events are counted in the stream in one round, once for each ownership: to know
whether they are behind."""


class WatchedShard(Protocol):
    """The shard whose actors are watched."""

    clock: Clock
    recorder: Recorder
    actors: dict[str, Actor]
    stopped: bool
    draining: bool
    epoch: int

    def within_lease(self) -> bool:
        """True if something may leave now."""
        ...

    async def confirmed_to(self, index: int) -> None:
        """Return once the journal holds the fact with that index."""
        ...


class AlertWatch:
    """Watches the receivers of one shard.

    - `limits`: returns those of a receiver, with its own settings.
    - `may_record`: whether every node that may take over knows alerts.
    """

    def __init__(
        self,
        shard: WatchedShard,
        writer: AlertWriter,
        limits: Callable[[str, AlertSettings], AlertLimits],
        may_record: Callable[[], bool],
    ) -> None:
        self.shard = shard
        self.writer = writer
        self._limits = limits
        self._may_record = may_record
        self._counts_left = 0
        self._interrupted_at = 0.0

    async def run(self) -> None:
        """Judge every few seconds, and publish what is owed, until the shard stops or is handed over."""
        loop, shard = asyncio.get_running_loop(), self.shard
        now = shard.clock.now()
        while not shard.stopped:
            await asyncio.sleep(next_tick(loop.time(), JUDGE_EVERY_S, offset=shard.epoch) - loop.time())
            before, now = now, shard.clock.now()
            may_attempt = shard.within_lease() and not shard.recorder.is_stalled
            # In between, the last round may have waited for a journal or a stream that took nothing.
            if not may_attempt or now - before > 2 * JUDGE_EVERY_S:
                self._interrupted_at = now
            if may_attempt and not shard.draining and self._may_record():
                unpublished = await self._judge_all()
                if unpublished:
                    await shard.confirmed_to(shard.recorder.index)
                    await self.publish(unpublished)

    async def _judge_all(self) -> list[Actor]:
        """Judge all receivers, and let the alerts change of those whose turn it is.

        Returns the receivers of which an event is owed.
        """
        concerned, turns = await self._concerned(), AlertTurns()
        self._counts_left = COUNTS_IN_A_ROUND_MAX
        now = self.shard.clock.now()
        for number, actor in enumerate(concerned, 1):
            if number % JUDGED_IN_TURN_MAX == 0:
                await asyncio.sleep(0)
                now = self.shard.clock.now()
            if alert_changes(actor.state, actor.policy, self._seen(actor), now):
                turns.add(actor.receiver, last_raised_at(actor.state, now))
        for receiver in turns.first():
            actor_now = self.shard.actors.get(receiver)  # The one that was judged may have left memory.
            if actor_now is not None and actor_now.loaded:
                actor_now.live.record(self._seen(actor_now), self.shard.clock.now())
        return [actor for actor in concerned if actor.state.unpublished_alerts]

    async def _concerned(self) -> list[Actor]:
        """The receivers in memory whose alerts may change.

        One that fails is parked, since its event waits for longer than it may be held, or has lost the event.
        """
        found = list[Actor]()
        for number, actor in enumerate(list(self.shard.actors.values()), 1):
            if number % PASSED_IN_TURN_MAX == 0:
                await asyncio.sleep(0)
            if actor.loaded and (actor.state.parked or actor.state.may_change_alerts):
                found.append(actor)
        return found

    def _seen(self, actor: Actor) -> c.JudgeAlerts:
        """The command to judge what is seen of the receiver; counts its events in the stream if necessary."""
        policy, pending, state = actor.policy, actor.pending, actor.state
        limits = self._limits(actor.receiver, policy.alerts if policy else NO_ALERT_SETTINGS)
        waiting_min, waiting_max = pending.waiting_bounds
        if policy is not None and self._counts_left and not pending.cursor.is_counting:
            many = behind_count(policy, limits.behind_percent)
            if waiting_min < many <= waiting_max or (
                waiting_max > many / 2 > waiting_min and is_raised(state, "behind")
            ):
                self._counts_left -= 1
                actor.reading.start_count(pending.cursor.read_to)
        return c.JudgeAlerts(
            limits=limits, waiting_min=waiting_min, waiting_max=waiting_max,
            oldest_at=pending.oldest_at, invalid=actor.live.invalid,
            watched_since=max(actor.live.failing_restored_at, self._interrupted_at),
            all_know_handshakes=actor.environment.all_know_handshakes(),
        )  # fmt: skip

    async def publish(self, unpublished: list[Actor]) -> None:
        """Publish what the confirmed states of these receivers owe; after a failure, the next one continues.

        Only within the lease: a later owner publishes the same events, which may be erased after that.
        """
        for actor in unpublished:
            for fact in actor.live.confirmed.unpublished_alerts:
                if not self.shard.within_lease():
                    return
                try:
                    await self.writer.publish(fact)
                except Unavailable:
                    return
                actor.live.record(c.RecordAlertsPublished(fact.number), self.shard.clock.now())
