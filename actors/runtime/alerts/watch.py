"""The watch over the alerts of one shard's receivers: has them judged, and publishes the events about them.

It goes through the actors in memory every few seconds, which costs most of them a comparison; nothing is done
for each delivery. Every receiver whose alerts may have to begin, end or be published is in memory, also after
a takeover (`State.may_change_alerts`).

An event about an alert is published only when its fact is confirmed, after those before it of the same
receiver, and the state owes it until it is recorded as published. So a new owner publishes it again if it
cannot know; its id is the same.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from actors.aligned_timers import next_tick
from actors.configuration.policy import NO_ALERT_SETTINGS, AlertLimits, AlertSettings
from actors.errors import Unavailable
from actors.machine import commands as c
from actors.machine.alerts.judging import behind_count
from actors.machine.state import State
from actors.ports import AlertWriter, Clock, Recorder
from actors.runtime.actor import Actor

JUDGE_EVERY_S = 5.0
PASSED_IN_TURN_MAX = 1000
"""Actors that are passed before other tasks have a turn; most of them take less than a microsecond."""
CHANGED_IN_A_ROUND_MAX = 16
"""Receivers of one tenant whose alerts may change in one round. Without a bound, a tenant with thousands of
receivers behind one broken server would fill its partition with alerts at once."""

JUDGED_IN_A_ROUND_MAX = 500
"""Receivers that are judged in one round; they take some milliseconds. Of more, each has its turn."""
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
        self._judged = 0

    async def run(self) -> None:
        """Judge every few seconds, and publish what is owed, until the shard stops or is handed over."""
        loop, shard = asyncio.get_running_loop(), self.shard
        while not shard.stopped:
            await asyncio.sleep(next_tick(loop.time(), JUDGE_EVERY_S, offset=shard.epoch) - loop.time())
            if shard.draining or not self._may_record():
                continue
            unpublished = await self._judge_some()
            if unpublished:
                await shard.confirmed_to(shard.recorder.index)
                await self.publish(unpublished)

    async def _judge_some(self) -> list[Actor]:
        """Judge the receivers whose turn it is; returns those of which an event is owed."""
        concerned = await self._concerned()
        begin = self._judged % len(concerned) if concerned else 0
        in_turn = concerned[begin:] + concerned[:begin]
        changed = Counter[str]()
        self._counts_left = COUNTS_IN_A_ROUND_MAX
        for actor in in_turn[:JUDGED_IN_A_ROUND_MAX]:
            self._judged += 1
            tenant, number = actor.receiver.partition(".")[0], actor.state.alert_number
            if changed[tenant] < CHANGED_IN_A_ROUND_MAX:
                self._judge(actor)
                changed[tenant] += actor.state.alert_number > number
        return [actor for actor in concerned if actor.state.unpublished_alerts]

    async def _concerned(self) -> list[Actor]:
        """The receivers in memory whose alerts may change: what waits, or what failed, may be worth one."""
        found = list[Actor]()
        for number, actor in enumerate(list(self.shard.actors.values()), 1):
            if number % PASSED_IN_TURN_MAX == 0:
                await asyncio.sleep(0)
            if actor.loaded and (actor.state.parked or actor.state.may_change_alerts):
                found.append(actor)
        return found

    def _judge(self, actor: Actor) -> None:
        policy, pending, state = actor.policy, actor.pending, actor.state
        limits = self._limits(actor.receiver, policy.alerts if policy else NO_ALERT_SETTINGS)
        waiting_min, waiting_max = pending.waiting_bounds
        if policy is not None and self._counts_left and not pending.cursor.counting:
            many = behind_count(policy, limits.behind_percent)
            if waiting_min < many <= waiting_max or (
                waiting_max > many / 2 > waiting_min and is_behind(state)
            ):
                self._counts_left -= 1
                actor.reading.start_count(pending.cursor.read_to)
        command = c.JudgeAlerts(
            limits=limits, waiting_min=waiting_min, waiting_max=waiting_max,
            oldest_at=pending.oldest_at, invalid=actor.live.invalid,
        )  # fmt: skip
        actor.live.record(command, self.shard.clock.now())

    async def publish(self, unpublished: list[Actor]) -> None:
        """Publish what the confirmed states of these receivers owe; after a failure, the next round goes on.

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
                if self.shard.stopped:
                    return
                actor.live.record(c.RecordAlertsPublished(fact.number), self.shard.clock.now())


def is_behind(state: State) -> bool:
    """True if the receiver has an alert because of what waits."""
    return any(each.kind == "behind" and each.raised for each in state.alerts)
