"""The simulator itself: deterministic, repeatable, and dead processes stay silent."""

import asyncio
import functools
import gc
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.sim.world import world as world_module
from tests.sim.world.process import EPOCH_S, Process
from tests.sim.world.world import Deadlock, LimitReached, RunFailed, World

ROOT = Path(__file__).parents[2]


async def idle(_: Process) -> None:
    await asyncio.Event().wait()


def run(seed: int, main: Callable[[Process], Coroutine[Any, Any, None]], limit_s: float = 10) -> None:
    """One process, until it ends."""
    with World(seed) as world:
        process = world.spawn("node", main)
        world.run(lambda: not process.alive, limit_s)


def run_crowd(seed: int) -> list[str]:
    """Some processes with tasks in sets, timers, freezes and kills: a history with much chance in it."""
    with World(seed, history_max=None) as world:

        async def worker(process: Process, number: int) -> None:
            while True:
                await asyncio.sleep(world.rng.random())
                process.say("worker %d at %.9f", number, process.wall_clock())

        async def main(process: Process) -> None:
            tasks = {asyncio.create_task(worker(process, number)) for number in range(20)}
            while True:
                done, _ = await asyncio.wait(tasks, timeout=world.rng.random())
                assert not done
                victim = next(iter(tasks))
                victim.cancel()
                await asyncio.wait({victim})
                tasks.discard(victim)
                tasks.add(asyncio.create_task(worker(process, len(tasks) + 100)))

        processes = [world.spawn(f"node-{number}", main) for number in range(3)]
        for process in processes[1:]:
            world.after(world.rng.random() * 5, process.freeze)
            world.after(world.rng.random() * 5 + 5, process.wake)
        world.after(12, processes[2].kill)
        world.run(lambda: world.now > 15, limit_s=20)
        return world.history()


def test_the_same_seed_gives_the_same_history_with_every_hash_seed() -> None:
    program = "from tests.sim.test_world import run_crowd; print(*run_crowd(7), sep='\\n')"
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] == "\n".join(run_crowd(7)) + "\n"
    assert len(outputs[0].splitlines()) > 1000
    assert run_crowd(8) != run_crowd(7)


def test_a_day_passes_in_no_time_and_every_clock_shows_it() -> None:
    clocks: list[float] = []

    async def main(process: Process) -> None:
        process.skew_s = -2.5
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(86_400)
        clocks.extend([asyncio.get_running_loop().time() - before, process.boottime(), process.wall_clock()])

    with World(1) as world:
        process = world.spawn("node", main)
        world.run(lambda: not process.alive, limit_s=90_000)
    assert clocks == pytest.approx([86_400, 86_400, EPOCH_S + 86_400 - 2.5], abs=1e-3)


def test_a_frozen_process_does_nothing_and_then_everything_that_was_due() -> None:
    got: list[tuple[str, float]] = []

    async def main(process: Process) -> None:
        await asyncio.sleep(1)
        got.append(("timer", world.now))
        await asyncio.Event().wait()

    with World(1) as world:
        process = world.spawn("node", main)
        world.at(0.5, process.freeze)
        world.at(0.7, process.post, lambda: got.append(("posted", world.now)))
        world.at(3, process.wake)
        world.run(lambda: len(got) == 2, limit_s=10)
    assert [what for what, _ in got] == ["posted", "timer"]
    assert all(3 <= when < 3.001 for _, when in got)


def test_a_suspended_machine_sleeps_through_its_timers_but_not_through_boottime() -> None:
    woke: list[float] = []

    async def main(process: Process) -> None:
        await asyncio.sleep(1)
        woke.extend([world.now, process.boottime(), process.monotonic()])

    with World(1) as world:
        process = world.spawn("node", main)
        world.at(0.25, lambda: process.freeze(suspend=True))
        world.at(10.25, process.wake)
        world.run(lambda: not process.alive, limit_s=20)
    assert woke == pytest.approx([11, 11, 1], abs=1e-3)


def test_a_freeze_falls_between_any_two_callbacks() -> None:
    """A freeze may fall between callbacks that were ready together, or between steps that do not wait."""
    stops = set()
    for seed in range(200):
        steps: list[str] = []

        async def main(_: Process, steps: list[str] = steps) -> None:
            async def step(name: str) -> None:
                for number in range(3):
                    steps.append(f"{name}{number}")
                    await asyncio.sleep(0)

            await asyncio.gather(step("a"), step("b"))

        with World(seed) as world:
            process = world.spawn("node", main)
            world.at(world.rng.random() * 200e-6, process.freeze)
            world.run_for(1)
            stops.add(len(steps))
    assert stops == set(range(7))


def test_the_dead_are_silent(recwarn: pytest.WarningsRecorder) -> None:
    """A killed process leaves no trace, at any stage of its coroutines."""
    seen: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)
            seen.append("generator went on")

    async def stubborn(process: Process) -> None:
        try:
            async with asyncio.TaskGroup() as group, asyncio.timeout(100):
                group.create_task(asyncio.sleep(100))
                async for _ in numbers():
                    pass
        finally:
            process.say("said by the dead")
            process.post(seen.append, "posted by the dead")
            asyncio.get_running_loop().call_later(0.1, seen.append, "a timer of the dead")
            process.loop.create_task(raises(process))
            await asyncio.sleep(0)
            await asyncio.sleep(1)
            seen.append("went on")

    async def fail() -> None:
        raise ValueError("nobody will ask")

    async def main(process: Process) -> None:
        tasks = [asyncio.create_task(stubborn(process)) for _ in range(3)]
        await asyncio.sleep(0.5)
        tasks.append(asyncio.create_task(asyncio.sleep(1)))
        tasks.append(asyncio.create_task(fail()))
        await asyncio.wait(tasks)

    gc.freeze()  # What there was before need not be looked through thirty times.
    for seed in range(30):
        with World(seed) as world:
            process = world.spawn("node", main)
            ends: list[str] = []
            process.at_end(functools.partial(ends.append, "dead"))
            world.at(0.5 + world.rng.random() * 50e-6, process.kill)
            world.run_for(5)
            assert ends == ["dead"]
            assert "said by the dead" not in "".join(world.history())
        gc.collect()
    gc.unfreeze()
    assert not seen
    assert not recwarn.list


def test_a_process_may_be_killed_and_frozen_from_within_its_own_turn() -> None:
    seen: list[str] = []

    async def main(process: Process) -> None:
        try:
            world.at(world.now + 1, process.wake)
            process.freeze()
            await asyncio.sleep(0)
            assert world.now >= 1
            process.kill()
            seen.append("until the next await")
            await asyncio.sleep(0)
            seen.append("went on")
        finally:
            seen.append("closed")

    with World(1) as world:
        process = world.spawn("node", main)
        world.run(lambda: not process.alive, limit_s=10)
    assert seen == ["until the next await", "closed"]


def test_a_deadlock_says_who_waits_where() -> None:
    with pytest.raises(Deadlock, match=r"(?s)^seed 1,.*node is waiting\n  task-1 at idle > Event.wait \("):
        run(1, idle)


def test_a_run_has_a_limit() -> None:
    async def main(_: Process) -> None:
        for _number in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(LimitReached, match=r"seed 1, at 0\.00"):
        run(1, main, limit_s=0.01)


def test_a_run_has_a_limit_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "STEPS_MAX", 50)

    async def main(_: Process) -> None:
        for _number in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(LimitReached, match=r"seed 1, at 0\.00.*: 50 steps were not enough"):
        run(1, main, limit_s=1e9)


async def raises(_: Process) -> None:
    raise ValueError("nobody handles this")


async def leaves_a_task_behind(process: Process) -> None:
    process.loop.create_task(raises(process))
    await idle(process)


async def calls_back(process: Process) -> None:
    def fail() -> None:
        raise ValueError("nobody handles this")

    process.loop.call_later(1, fail)
    await idle(process)


async def is_judged(process: Process) -> None:
    process.world.fail("nobody handles this")
    await idle(process)


@pytest.mark.parametrize("main", [raises, leaves_a_task_behind, calls_back, is_judged])
def test_an_unhandled_error_fails_the_run_with_its_seed(
    main: Callable[[Process], Coroutine[Any, Any, None]],
) -> None:
    with pytest.raises(RunFailed, match=r"(?s)^seed 3,.*nobody handles this"):
        run(3, main)


async def test_a_world_runs_within_a_running_loop_and_leaves_it_as_it_was() -> None:
    outer = asyncio.get_running_loop()
    with World(1) as world:
        process = world.spawn("node", lambda _: asyncio.sleep(1))
        world.run(lambda: not process.alive, limit_s=2)
        world.spawn("other", idle)
    assert asyncio.get_running_loop() is outer
    await asyncio.sleep(0)


def test_the_history_is_a_ring() -> None:
    with World(1, history_max=2) as world:
        for number in range(3):
            world.say("line %d", number)
    assert world.history() == ["    0.000000 line 1", "    0.000000 line 2"]
