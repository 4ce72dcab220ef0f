"""No free connection: the node stays live, serves what it can, and delivers everything in the end.

Either more receivers hang than there may be connections, or the system gives no descriptor any more.
"""

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from urllib.request import urlopen

import pytest

from angarium.node.descriptors import SPARE_COUNT
from tests.support.fleet.fleet import Fleet, open_fleet
from tests.support.fleet.load import AT_ONCE, Load, publish
from tests.support.fleet.sink import Hang, Reply, Sink
from tests.support.processes.nodes import HAS_PROC, LONG_TTL_S, Node, needs_proc

HEALTHY = tuple(f"t.r{number}" for number in range(20))
EVERY_S = 0.5
"""Pause of a producer, for a healthy receiver, which has to be served at all times, not often."""
CONNECTIONS = 24
OF_A_HOST = 2500
"""Receivers of one sink that hang: fewer than a host may have connections."""
OTHERS = 1000
"""Descriptors that are used besides those of receivers that hang."""


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet whose nodes keep their leases, however long they get no processor."""
    async with open_fleet(tmp_path, ttl_s=LONG_TTL_S) as fleet:
        yield fleet


class HangingReceivers:
    """Receivers at sinks of their own that hang until they are well, each with one event waiting."""

    def __init__(self, fleet: Fleet, sinks: list[Sink], receivers: list[str]) -> None:
        self.receivers = receivers
        self._fleet = fleet
        self._sinks = {name: sinks[number // OF_A_HOST] for number, name in enumerate(receivers)}
        self._well = False

    async def gather(self, timeout_s: float) -> None:
        """Configures all receivers, and publishes to each."""
        retry = {"base_s": 0.1, "cap_s": 2.0}
        for first in range(0, len(self.receivers), AT_ONCE):
            some = self.receivers[first : first + AT_ONCE]
            await asyncio.gather(*(self._add(name, retry=retry, timeout_s=timeout_s) for name in some))

    async def _add(self, name: str, **members: object) -> None:
        sink = self._sinks[name]
        sink.manners[name] = lambda _: Reply() if self._well else Hang()
        await self._fleet.configure([name], url=sink.url(name), **members)
        await publish(self._fleet.js, name, name.replace(".", ":"))

    def recover(self) -> None:
        self._well = True

    def asked(self) -> bool:
        """True if each has received a request."""
        return all(self._sinks[name].arrivals[name] for name in self.receivers)

    def served(self) -> bool:
        """True if each has accepted its event, under its number."""
        return all(
            any(each.accepted and each.sequence == 1 for each in self._sinks[name].arrivals[name])
            for name in self.receivers
        )


@pytest.mark.parametrize(
    ("hanging", "descriptors", "timeout_s"),
    [
        (60, CONNECTIONS + SPARE_COUNT, 1.0),
        pytest.param(10_000, None, 15.0, marks=[pytest.mark.soak, pytest.mark.alone]),
    ],
)
async def test_receivers_that_hang_do_not_delay_others(
    fleet: Fleet, hanging: int, descriptors: int | None, timeout_s: float
) -> None:
    may_open(hanging + OTHERS)
    async with AsyncExitStack() as stack:
        sinks = [await stack.enter_async_context(Sink()) for _ in range(0, hanging, OF_A_HOST)]
        hung = HangingReceivers(fleet, sinks, [f"h.r{number}" for number in range(hanging)])
        node = await fleet.start_ready(descriptors=descriptors)
        await fleet.configure(HEALTHY)
        await hung.gather(timeout_s)
        load = Load(fleet, HEALTHY, every_s=EVERY_S)
        async with load.flowing():
            await fleet.until(hung.asked, "each that hangs was asked")
        assert not hung.served()
        for name in (hung.receivers[0], HEALTHY[0]):
            assert (await fleet.ask("inspect", name))["node"] == node.name
        assert await asyncio.to_thread(is_healthy, node)
        if HAS_PROC:
            print(f"{hanging} hang, {load.total} events went on; {node.memory_mb('VmHWM'):.0f} MB at most")
        load.check()
        hung.recover()
        await fleet.until(hung.served, "all are served once they are well")
        await node.stop()


@needs_proc
async def test_without_a_descriptor_kept_connections_serve_and_the_rest_waits(fleet: Fleet) -> None:
    async with Sink() as elsewhere:
        node = await fleet.start_ready()
        await fleet.configure(["t.kept"])
        await fleet.configure(["t.new"], url=elsewhere.url("t.new"), retry={"base_s": 0.05, "cap_s": 0.2})
        load = Load(fleet, ["t.kept"])
        await load.publish(1)
        await load.arrived()
        limit = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (lowest_free(node.pid), limit[1]))
        await publish(fleet.js, "t.new", "new:1")
        await fleet.until_true(lambda: overloaded(fleet, "t.new"), "t.new failed for want of a descriptor")
        await load.publish(10)
        await load.arrived()
        assert not elsewhere.arrivals["t.new"]
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, limit)
        await fleet.until(lambda: len(elsewhere.arrivals["t.new"]) == 1, "t.new is served")
        load.check()
        assert await asyncio.to_thread(is_healthy, node)


def may_open(descriptors: int) -> None:
    """Limit the files that this process, and the node that it starts, may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < descriptors:
        pytest.skip(f"this machine does not allow {descriptors} open files")
    if resource.RLIM_INFINITY != soft < descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))


def lowest_free(pid: int) -> int:
    """The number that the next descriptor of a process would have."""
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return next(number for number in count() if number not in taken)


async def overloaded(fleet: Fleet, receiver: str) -> bool:
    """True if its last attempt failed because there was no descriptor."""
    attempt = (await fleet.ask("inspect", receiver))["last_attempt"]
    return attempt is not None and str(attempt["error"]).startswith("overload")


def is_healthy(node: Node) -> bool:
    with urlopen(f"{node.monitor}/healthz", timeout=60) as answer:
        return bool(answer.status == 200)
