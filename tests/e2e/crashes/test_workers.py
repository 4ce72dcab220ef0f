"""Several workers under one supervisor: they share the work, and end or come back together or one by one."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from streams.fleet.placement import even_owners
from tests.support.fleet.fleet import SHARDS, Fleet, open_fleet
from tests.support.fleet.load import mixed_load
from tests.support.processes.commands import PATIENCE_S, Terminal, line_with
from tests.support.processes.nodes import Node, needs_proc

WORKERS = ("one-1", "one-2")
LONG_TTL_S = 60


@needs_proc
@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.soak)])
async def test_a_killed_worker_is_started_again_and_nothing_is_lost(
    fleet: Fleet, rng: random.Random, rounds: int
) -> None:
    load = await mixed_load(fleet)
    node = await started(fleet)
    crashes_at = []
    async with load.flowing():
        for _ in range(rounds):
            await load.pass_some(rng)
            pids = node.worker_pids()
            killed = rng.choice(WORKERS)
            os.kill(pids[killed], signal.SIGKILL)
            crashes_at.append(time.monotonic())
            await fleet.until(
                lambda pid=pids[killed], name=killed: node.worker_pids()[name] != pid,  # type: ignore[misc]
                f"{killed} is started again",
            )
            await shared_out(fleet)
            assert [name for name in WORKERS if node.worker_pids()[name] != pids[name]] == [killed]
        await load.pass_some(rng)
    load.check(crashes_at)
    assert node.times("worker.ended") == rounds
    await node.stop()
    assert not living(node)


@needs_proc
async def test_a_killed_worker_takes_its_shards_back_at_once(tmp_path: Path) -> None:
    async with open_fleet(tmp_path, ttl_s=LONG_TTL_S) as fleet:
        node = await started(fleet)
        # A worker may own its shards a moment before it says so; killed in between, it would never say it.
        await fleet.hears(node, "node.ready", len(WORKERS))
        os.kill(node.worker_pids()["one-2"], signal.SIGKILL)
        async with asyncio.timeout(LONG_TTL_S):  # Others see the death only after a TTL.
            await fleet.hears(node, "node.ready", len(WORKERS) + 1)


@needs_proc
async def test_workers_that_are_stopped_together_repeat_nothing(fleet: Fleet, rng: random.Random) -> None:
    load = await mixed_load(fleet)
    node = await started(fleet)
    async with load.flowing():
        await load.pass_some(rng)
        await node.stop()
        assert not living(node)
        assert not await fleet.owners()
        await node.start()
        await shared_out(fleet)
    load.check()


@needs_proc
async def test_workers_stop_when_their_supervisor_is_killed(fleet: Fleet, rng: random.Random) -> None:
    """A worker hands everything over then, as by SIGTERM; so even that repeats nothing."""
    load = await mixed_load(fleet)
    node = await started(fleet)
    async with load.flowing():
        await load.pass_some(rng)
        pids = node.worker_pids().values()
        await node.kill()
        await fleet.until(lambda: not alive(pids), "the workers are gone")
        assert not await fleet.owners()
        await node.start()
    load.check()


@needs_proc
async def test_a_worker_that_is_stopped_alone_comes_back(fleet: Fleet) -> None:
    node = await started(fleet)
    first = node.worker_pids()
    os.kill(first["one-2"], signal.SIGTERM)
    await fleet.until(lambda: node.worker_pids()["one-2"] != first["one-2"], "it is started again")
    await shared_out(fleet)
    (ended,) = [line for line in node.said if line["event"] == "worker.ended"]
    assert (ended["worker"], ended["how"], ended["starts_again_in_s"]) == ("one-2", "exit status 0", 0.5)


@needs_proc
async def test_every_line_names_its_node(fleet: Fleet) -> None:
    node = await started(fleet)
    await node.stop()
    assert {line["node"] for line in node.said} == {"one", *WORKERS}


async def test_ctrl_c_while_workers_start_stops_them_in_order(terminal: Terminal) -> None:
    """The terminal sends it to the supervisor alone: a worker that is not ready for it would die of it."""

    def interrupted() -> int:
        with terminal.start("node", "--workers", "2") as supervisor:
            for _ in WORKERS:
                line_with(supervisor.stderr, "worker.started")
            os.killpg(supervisor.pid, signal.SIGINT)
            line_with(supervisor.stderr, "workers.stopping")
            return supervisor.wait(PATIENCE_S)

    assert await asyncio.to_thread(interrupted) == 0


@pytest.mark.parametrize(
    ("flags", "status", "says"),
    [
        (("--workers", "0"), 2, "workers (--workers): must be a whole number from 1 to 64"),
        (
            ("--workers", "2", "--shards", "32"),
            1,
            "the installation has 16 shards, the setting shards says 32",
        ),
        (("--workers", "2", "--nats", "nats://127.0.0.1:1"), 1, "nats://127.0.0.1:1"),
    ],
)
async def test_an_error_that_stops_all_workers_is_said_once(
    terminal: Terminal, flags: tuple[str, ...], status: int, says: str
) -> None:
    assert says in await asyncio.to_thread(terminal.failed, "node", *flags, status=status)


async def started(fleet: Fleet) -> Node:
    """A node with two workers, each with its share."""
    node = await fleet.start(workers=len(WORKERS))
    await shared_out(fleet)
    return node


async def shared_out(fleet: Fleet) -> None:
    """Return when each worker owns what the placement gives it."""
    fair = dict(enumerate(even_owners(SHARDS, WORKERS)))

    async def owned() -> bool:
        return await fleet.owners() == fair

    await fleet.until_true(owned, "the shards are shared out")


def living(node: Node) -> list[int]:
    """The processes of its workers that have not ended."""
    return alive(node.worker_pids().values())


def alive(pids: Iterable[int]) -> list[int]:
    """The processes that have not ended; a zombie has (proc_pid_stat(5))."""
    return [pid for pid in pids if _state(pid) not in "ZX"]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"
