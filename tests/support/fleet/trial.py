"""A fleet on three servers under load, with one failure after the other."""

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

from actors.errors import Unavailable
from angarium.settings import REPLICATED_TTL_S
from streams.installation.topology import Installation
from streams.observation.installation_status import servers_behind
from streams.server.cluster import monitored
from streams.server.embedded import EmbeddedServer
from tests.support.fleet.fanout import Fanout, fanout
from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import RECEIVERS, Load, mixed_load
from tests.support.fleet.ownership import zombies_posted, zombies_wrote
from tests.support.fleet.records import repeats
from tests.support.processes.nodes import Node

GOES_ON_S = 10.0
"""Time from the failure of a server until every receiver gets new events, on a machine of its own."""
GOES_ON_MAX_S = 30.0
"""Time until then on an overloaded machine."""
TAKEN_S = REPLICATED_TTL_S + 2
"""Longest time until other nodes deliver for the shards of one that is gone, on a machine of its own."""


class Trial:
    """Direct and fanned-out events, in both orders; made by `begin`.

    `failed` notes the moment of each failure after which accepted events may come again. `saw` takes a result
    for the table.
    """

    def __init__(
        self, fleet: Fleet, rng: random.Random, direct: Load, wide: Fanout, saw: Callable[[str], None]
    ) -> None:
        self.fleet = fleet
        self.rng = rng
        self._direct = direct
        self._wide = wide
        self.saw = saw
        self._failed_at: list[float] = []

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Publish for as long as the block lasts; then wait for it all."""
        async with self._direct.flowing(), self._wide.flowing():
            await self.some()
            yield

    async def some(self) -> None:
        """Return at some moment under load."""
        await self._direct.pass_some(self.rng)

    def failed(self) -> None:
        """Note that something fails now."""
        self._failed_at.append(time.monotonic())

    async def goes_on(self, after: str, bound_s: float = GOES_ON_S) -> None:
        """Return when each receiver has got an event that was published after this call.

        The table tells the bound on a machine of its own; the test fails at `GOES_ON_MAX_S`.
        """
        since = time.monotonic()
        direct = [(record, max(len(record.published), record.reached)) for record in self._direct.records]
        wide = [(record, len(record.arrivals)) for record in self._wide.records]
        await self.fleet.until(
            lambda: (
                all(record.reached > published for record, published in direct)
                and all(len(record.arrivals) > arrived for record, arrived in wide)
            ),
            f"each receiver gets new events after {after}",
        )
        took_s = time.monotonic() - since
        self.saw(f"{took_s:.1f} s after {after} ({_bound(took_s, bound_s)})")
        assert took_s < GOES_ON_MAX_S

    def no_shard_paused(self, since: float, bound_s: float) -> None:
        """Tell the longest pause of a shard since that moment, and the bound on a machine of its own.

        Other work may keep this machine busy, so the test fails only at `GOES_ON_MAX_S`.
        """
        pauses = [
            later - earlier
            for seen in self.fleet.arrivals().values()
            for earlier, later in pairwise(sorted(each.at for each in seen if each.at >= since))
        ]
        self.saw(f"a shard paused for {max(pauses):.2f} s at most ({_bound(max(pauses), bound_s)})")
        assert max(pauses) < GOES_ON_MAX_S

    async def check(self, *, clocks: bool = True) -> None:
        """Every promise, by what the receivers saw and by the journal.

        `clocks`: those of the nodes are right, so that their records tell when each was the owner. Whose an
        arrival was is not known if its node was killed before the system could be asked; then it was the
        owner, since no other node claims so soon.
        """
        flushes = await self.fleet.flushes()
        assert not list(zombies_wrote(flushes))
        if clocks:
            arrivals = {
                shard: [each for each in seen if each.by] for shard, seen in self.fleet.arrivals().items()
            }
            posted = list(zombies_posted(arrivals, flushes, self.fleet.sink.late_s))
            assert not posted, posted[:5]
        events = again = 0
        for load in (self._direct, self._wide):
            load.check(self._failed_at)
            events += load.total
            again += sum(sum(repeats(record)) for record in load.records)
        self.saw(f"{events} deliveries, {again} again")


def _bound(took_s: float, bound_s: float) -> str:
    """The bound in words, and whether it was exceeded."""
    return f"{'bound' if took_s <= bound_s else 'LATE, bound'} {bound_s:g} s"


async def begin(
    fleet: Fleet, rng: random.Random, saw: Callable[[str], None], receivers: Sequence[str] = RECEIVERS
) -> Trial:
    """Configure the receivers; no event flows yet. `saw` takes what is to be told of the trial."""
    return Trial(fleet, rng, await mixed_load(fleet, receivers), await fanout(fleet), saw)


# ---- servers


def hang(server: EmbeddedServer) -> None:
    """SIGSTOP: the server does nothing, and its connections stay open."""
    os.kill(_pid(server), signal.SIGSTOP)


def resume(server: EmbeddedServer) -> None:
    """SIGCONT."""
    os.kill(_pid(server), signal.SIGCONT)


def _pid(server: EmbeddedServer) -> int:
    return int(server.pid_file.read_text())


def empty(server: EmbeddedServer) -> None:
    """Delete the store of a server that does not run."""
    shutil.rmtree(server.directory / "jetstream")


def store_bytes(server: EmbeddedServer) -> int:
    """The bytes of messages in the store of a server that does not run."""
    return sum(block.stat().st_size for block in (server.directory / "jetstream").rglob("*.blk"))


async def meta_leader(fleet: Fleet) -> EmbeddedServer:
    """The server that creates and places streams for all."""
    while True:
        for server in fleet.servers:
            if (await _told(server, "/jsz")).get("meta_cluster", {}).get("replicas"):
                return server


async def server_of(fleet: Fleet, node: Node) -> EmbeddedServer:
    """The server to which a node is connected."""
    while True:
        for server in fleet.servers:
            connections = (await _told(server, "/connz")).get("connections") or []
            if any(each.get("name") == node.name for each in connections):
                return server


async def caught_up(fleet: Fleet) -> bool:
    """True if each stream and bucket has a leader, and no server lacks messages of one for long."""
    try:
        return not await servers_behind(fleet.js, Installation(replicas=len(fleet.servers)))
    except Unavailable:
        return False


async def is_full(server: EmbeddedServer) -> bool:
    """True if a server says that it cannot keep up with a stream."""
    return (await _told(server, "/healthz")).get("status") != "ok"


async def _told(server: EmbeddedServer, path: str) -> dict[str, Any]:
    return await asyncio.to_thread(monitored, server, path)
