"""Producers that publish to all subscribers, and what each receiver must get.

A producer waits for each acknowledgement, so its events lie in the stream in its order, and what a receiver
is to get are those of the types that it wants, in the order of the stream: no producer's order may change.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.load import Load, configure_relaxed, slow_and_flaky
from tests.support.fleet.sink import Reply

WANTED = {
    ">": ("order.created", "order.paid", "user.new", "user.new.again"),
    "order.*": ("order.created", "order.paid"),
    "user.new": ("user.new",),
    "user.>": ("user.new", "user.new.again"),
}
"""The types that each pattern matches."""

TYPES = WANTED[">"]
TENANT = "f"
SUBSCRIPTIONS = {f"{TENANT}.r{number}": tuple(WANTED)[number % len(WANTED)] for number in range(20)}
SLOW = tuple(receiver for receiver, pattern in SUBSCRIPTIONS.items() if pattern == "user.new")
RELAXED = tuple(receiver for receiver, pattern in SUBSCRIPTIONS.items() if pattern == "order.*")
PRODUCERS = 4
EVERY_S = 0.05

COPY_BYTES = 180
"""Approximate bytes that a copy takes in the stream."""


class Fanout(Load):
    """From four producers to twenty receivers of one tenant, who want one to four types of four."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, SUBSCRIPTIONS, RELAXED)
        self._positions: dict[str, int] = {}
        self._types: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Publish, every so often, for as long as the block lasts; then wait for it all."""
        async with asyncio.TaskGroup() as group:
            for producer in range(PRODUCERS):
                group.create_task(self._produce(producer))
            try:
                yield
            finally:
                self._stopping = True
        self._fill_records()
        await self.arrived()

    def _fill_records(self) -> None:
        """Let the records know what their receivers were to get."""
        for record in self.records:
            wanted = WANTED[SUBSCRIPTIONS[record.receiver]]
            ids = [event_id for event_id, event_type in self._types.items() if event_type in wanted]
            record.published[:] = sorted(ids, key=self._positions.__getitem__)

    async def tell_repeats(self) -> None:
        """Print how many copies there were; those too many were recognised, or a rule is broken."""
        info = await self._fleet.js.stream_info(names.deliveries)
        assert info is not None
        print(f"{info.messages} copies for {self.total} arrivals")

    def _behind(self) -> int:
        """Counts roughly the events that the receiver furthest behind has not seen yet."""
        owed = {pattern: sum(self._counts[each] for each in wanted) for pattern, wanted in WANTED.items()}
        return max(owed[SUBSCRIPTIONS[record.receiver]] - record.reached for record in self.records)

    async def _produce(self, producer: int) -> None:
        number = 0
        while await self._goes_on(self._behind):
            event_id, event_type = f"p{producer}:{number}", TYPES[(producer + number) % len(TYPES)]
            self._positions[event_id] = await announce(self._fleet.js, f"{TENANT}.{event_type}", event_id)
            self._types[event_id] = event_type
            self._counts[event_type] += 1
            number += 1
            await asyncio.sleep(EVERY_S)


@asynccontextmanager
async def nearly_full(fleet: Fleet, room: int) -> AsyncIterator[None]:
    """Some `room` copies are taken, all others refused, for as long as the block lasts."""
    info = await fleet.js.stream_info(names.deliveries)
    assert info is not None
    await fleet.js.stream_update(info.config | {"max_bytes": info.bytes + room * COPY_BYTES})
    yield
    await fleet.js.stream_update(info.config)


async def fanout(fleet: Fleet) -> Fanout:
    """For receivers of which some take their time, and some are relaxed."""
    for receiver, pattern in SUBSCRIPTIONS.items():
        configure = configure_relaxed if receiver in RELAXED else Fleet.configure
        await configure(fleet, [receiver], events=[pattern])
    fleet.sink.manners |= dict.fromkeys(SLOW, lambda _: Reply(delay_s=0.02))
    fleet.sink.manners |= dict.fromkeys(RELAXED, slow_and_flaky)
    return Fanout(fleet)


async def announce(js: JetStream, address: str, event_id: str) -> int:
    """Publish to `<tenant>.<type>` until it is acknowledged; returns the position."""
    while True:
        answer = await js.publish(f"angarium.events.{address}", b"{}", {"Nats-Msg-Id": event_id})
        if isinstance(answer, Stored):
            return answer.position
        await asyncio.sleep(0.05)  # The server is away; it will not take it sooner for being asked at once.
