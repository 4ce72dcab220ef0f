"""Publishes events for all subscribers; at times there is no room for their copies.

It has a source of chance of its own, and half of the seeds do without it.
"""

import asyncio
from typing import TYPE_CHECKING

from streams.nats.protocol import rfc3339
from streams.nats.wire import Wire
from tests.sim.checks.fanout import MALFORMED, PATTERNS, TYPES
from tests.sim.workload import REGIONS, uneven
from tests.sim.world.process import EPOCH_S, Process

if TYPE_CHECKING:
    from tests.sim.run import Run


class FanoutProducer:
    """The announcements of one run. After `calm` nothing more is published, and there is room."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.chance = chance = run.world.random("announcing")
        self._events_max = chance.choice((0, 0, 30, 100, 300))
        self._pause_s = chance.choice((0.005, 0.02, 0.1, 0.5))
        self._bursts = chance.choice((0.0, 0.0, 0.05))
        self._repeats = chance.choice((0.0, 0.0, 0.1))
        self._malformed = chance.choice((0.0, 0.05))
        self._strays = run.world.random("strays")
        self._regions = run.world.random("regions")
        self._names_regions = self._regions.random() < 0.5
        self._timed = run.world.random("timed")
        self._timed_share = self._timed.choice((0.0, 0.0, 0.1, 0.3))
        if run.plan.flood:
            self._events_max, self._bursts = max(self._events_max, 100), 0.1
        self._full_every_s = chance.choice((0.0, 0.0, 1.0, 5.0))
        self._tenants = sorted({receiver.partition(".")[0] for receiver in run.plan.receivers})
        self._over = False
        self._events = 0

    def start(self) -> None:
        if self._events_max:
            self.run.world.spawn("announcer", self._produce)
            self._again_full()

    def calm(self) -> None:
        self._over = True
        self._make_room(-1)

    def patterns(self) -> list[str]:
        """The patterns of a receiver's configuration."""
        chance = self.chance
        return [">"] if chance.random() < 0.5 else chance.sample(PATTERNS, chance.choice((0, 1, 2)))

    # ---- publishing

    async def _produce(self, process: Process) -> None:
        wire = await self.run.network.connect(process)
        chance = self.chance
        while self._events < self._events_max and not self._over:
            await asyncio.sleep(chance.expovariate(1 / self._pause_s))
            for _ in range(chance.randint(20, 80) if chance.random() < self._bursts else 1):
                await self._publish(wire)
        await wire.close()

    async def _publish(self, wire: Wire) -> None:
        """Each has a body of its own; whether it is accepted is the server's to say."""
        self._events += 1
        chance = self.chance
        headers = {"Angarium-Id": f"f{self._events}"} if chance.random() < 0.8 else {}
        if chance.random() < self._repeats:
            headers["Angarium-Id"] = f"f{max(1, self._events - chance.choice((1, 5, 40)))}"
            if chance.random() < 0.3:
                headers["Angarium-Again"] = f"again{chance.randint(1, 3)}"
        event_type = chance.choice(MALFORMED if chance.random() < self._malformed else TYPES)
        tenant = uneven(self._strays, self.run.plan.flood, self._tenants, chance.choice(self._tenants))
        subject = self.run.names.publish_event(tenant, event_type)
        if (
            self._timed.random() < self._timed_share
            and event_type in TYPES
            and "Angarium-Again" not in headers
        ):
            headers["Angarium-Deliver-At"] = rfc3339(EPOCH_S + self.run.world.now + 10 * self._timed.random())
        if self._strays.random() < self.run.plan.strays:
            subject = self._stray(tenant)
        if self._names_regions and (region := self._regions.choice(REGIONS)):
            headers["Angarium-Region"] = region
        await wire.publish(subject, b'{"fanout":%d}' % self._events, headers=headers)

    def _stray(self, tenant: str) -> str:
        """A subject that is accepted, and that leads to no shard."""
        names, chance = self.run.names, self._strays
        if chance.random() < 0.5:
            return names.publish_event(tenant, chance.choice(("*", ">", "order.*")))
        return names.publish_to(chance.choice((f"{tenant}.*", f"{tenant}.>", "*.r0", "*.>")))

    # ---- no room

    def _again_full(self) -> None:
        if self._full_every_s and not self._over:
            self.run.world.after(self.chance.expovariate(1 / self._full_every_s), self._fill)

    def _fill(self) -> None:
        """For a while the deliveries take a few more copies, and no other."""
        if self._over:
            return
        stored = self.run.server.streams[self.run.names.deliveries].store.bytes
        self._make_room(stored + self.chance.randint(1, 2000))
        self.run.world.after(self.chance.choice((0.1, 1.0, 5.0)) * self.chance.random(), self._empty)

    def _empty(self) -> None:
        if not self._over:
            self._make_room(-1)
            self._again_full()

    def _make_room(self, max_bytes: int) -> None:
        stream = self.run.server.streams[self.run.names.deliveries]
        stream.configure(stream.config | {"max_bytes": max_bytes})
