"""Producers that load a fleet: one for each receiver, which waits for each acknowledgement.

An event whose acknowledgement was lost is published again with the same `Nats-Msg-Id`, as any careful
producer does. So `published` is the order in which the stream holds them, and nothing else was accepted.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from tests.support.fleet.fleet import Fleet
from tests.support.fleet.records import Record, breaches, needless_repeats, repeats
from tests.support.fleet.sink import Reply
from tests.support.processes.nodes import Node

RECEIVERS = tuple(f"t.r{number}" for number in range(20))
MANY_RECEIVERS = tuple(f"t.r{number}" for number in range(280))
"""With the subscribers of `fanout`, 300."""
SLOW = RECEIVERS[::5]
RELAXED = RECEIVERS[1::5]
QUICK = RECEIVERS[2::5]
CONCURRENCY = 4
EVERY_S = 0.04

BEHIND_MAX = 500
"""A node that is killed all the time on a busy machine gets little done; its load is not to grow forever."""

LOOK_S = 0.05
AT_ONCE = 500


async def mixed_load(fleet: Fleet, receivers: Sequence[str] = RECEIVERS) -> "Load":
    """For receivers of which some take their time, so that a crash always finds attempts in flight.

    Some are relaxed, so slow that they have several in flight, and fail at times. However many they are, 500
    events a second are published to them.
    """
    relaxed = receivers[1::5]
    await fleet.configure(set(receivers) - set(relaxed))
    await configure_relaxed(fleet, relaxed)
    fleet.sink.manners |= dict.fromkeys(receivers[::5], lambda _: Reply(delay_s=0.02))
    fleet.sink.manners |= dict.fromkeys(relaxed, slow_and_flaky)
    return Load(fleet, receivers, relaxed, every_s=EVERY_S * len(receivers) / len(RECEIVERS))


async def configure_relaxed(fleet: Fleet, receivers: Iterable[str], **members: Any) -> None:
    """In relaxed order, `CONCURRENCY` wide, and soon tried again."""
    retry = {"base_s": 0.2, "cap_s": 0.5}
    await fleet.configure(receivers, order="relaxed", concurrency=CONCURRENCY, retry=retry, **members)


def slow_and_flaky(number: int) -> Reply:
    """Answers like a relaxed receiver with several attempts in flight, some of which are repeated."""
    return Reply(status=200 if number % 7 else 503, delay_s=0.03)


def slow_at_times(number: int) -> Reply:
    """Every tenth answer takes 200 ms, so that the receiver does not fall behind."""
    return Reply(delay_s=0.2 if number % 10 == 0 else 0.0)


class Load:
    """The published events, by receiver, as records that share the arrivals of the fleet's sink.

    Those of the receivers that are `relaxed` are as `configure_relaxed` makes them, all others are strict.
    `every_s`: the pause of each producer while events flow.
    """

    def __init__(
        self,
        fleet: Fleet,
        receivers: Iterable[str],
        relaxed: Collection[str] = (),
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self.records = [
            Record(
                receiver=each, wide=CONCURRENCY if each in relaxed else 1, arrivals=fleet.sink.arrivals[each]
            )
            for each in receivers
        ]  # fmt: skip
        self._fleet = fleet
        self._every_s = every_s
        self._stopping = False

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Publish to each receiver, every so often, for as long as the block lasts; then wait for it all."""
        async with asyncio.TaskGroup() as group:
            for record in self.records:
                group.create_task(self._flow(record))
            try:
                yield
            finally:
                self._stopping = True
        await self.arrived()

    async def publish(self, count: int, body: bytes = b"{}") -> None:
        """Publish to each receiver, many at once, in order."""
        for record in self.records:
            start = len(record.published)
            ids = [f"{_token(record)}:{number}" for number in range(start, start + count)]
            for first in range(0, count, AT_ONCE):
                js, some = self._fleet.js, ids[first : first + AT_ONCE]
                positions = await asyncio.gather(*(publish(js, record.receiver, each, body) for each in some))
                assert positions == sorted(positions), "one had to be published again, behind the others"
            record.published += ids

    async def despite_kills_of_nats(self, rng: random.Random, node: Node, rounds: int) -> None:
        """Kills nats-server in each round; in every other one until the node's lease is over."""
        async with self.flowing():
            for number in range(rounds):
                await self.pass_some(rng)
                lapses = node.times("lease.lapsed")
                await self._fleet.server.kill()
                if number % 2 == 0:
                    await self._fleet.hears(node, "lease.lapsed", lapses + 1)
                await self._fleet.server.start()

    async def pass_some(self, rng: random.Random) -> None:
        """Return at some moment under load: a random number of requests from now."""
        sink, moment = self._fleet.sink, self._fleet.sink.total + rng.randint(1, 600)
        await self._fleet.until(lambda: sink.total >= moment, f"request {moment} came")

    async def arrived(self) -> None:
        """Return when every event was accepted."""
        for record in self.records:
            await self._all_of(record)

    async def _all_of(self, record: Record) -> None:
        count = len(record.published)
        await self._fleet.until(
            lambda: record.complete, f"all of {count} events for {record.receiver} were accepted"
        )

    @property
    def complete(self) -> bool:
        """True if every event was accepted."""
        return all(record.complete for record in self.records)

    @property
    def total(self) -> int:
        return sum(len(record.published) for record in self.records)

    async def _flow(self, record: Record) -> None:
        while await self._goes_on(lambda: len(record.published) - record.reached):
            event_id = f"{_token(record)}:{len(record.published)}"
            await publish(self._fleet.js, record.receiver, event_id)
            record.published.append(event_id)
            await asyncio.sleep(self._every_s)

    async def _goes_on(self, behind: Callable[[], int]) -> bool:
        """True if more should be published, once the receivers have caught up."""
        while behind() >= BEHIND_MAX and not self._stopping:  # noqa: ASYNC110  # No event tells of it.
            await asyncio.sleep(LOOK_S)
        return not self._stopping

    def check(self, crashes_at: Sequence[float] = ()) -> None:
        """Every promise, by the records; what is repeated must have a crash before it."""
        again = zip(*(repeats(record, crashes_at) for record in self.records), strict=True)
        print(f"{self.total} events; came again before the first crash and after each: {[*map(sum, again)]}")
        found = breaches(self.records)
        assert not found, f"{len(found)} breaches, with crashes at {[*crashes_at]}: {found[:12]}"
        assert not list(needless_repeats(self.records, crashes_at))


def _token(record: Record) -> str:
    return record.receiver.replace(".", ":")


async def publish(js: JetStream, receiver: str, event_id: str, body: bytes = b"{}") -> int:
    """Publish until it is acknowledged; returns the position."""
    while True:
        answer = await js.publish(f"angarium.deliver.{receiver}", body, {"Nats-Msg-Id": event_id})
        if isinstance(answer, Stored):
            return answer.position
        await asyncio.sleep(0.05)  # The server is away; it will not take it sooner for being asked at once.
