"""The supervisor: which workers it starts again and when, how it stops them, and when it gives up."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from angarium.settings import Settings
from angarium.workers.supervisor import Supervisor, WorkersFailed
from tests.unit.workers.fake_processes import FakeProcess, Machine, begin, crash, refuse
from tests.unit.worlds.virtual_time import in_virtual_time

SETTINGS = Settings(node="n", workers=2, drain_s=10.0)
TERM, KILL = signal.SIGTERM, signal.SIGKILL


@asynccontextmanager
async def running(machine: Machine) -> AsyncIterator[tuple[Supervisor, asyncio.Task[None]]]:
    """A supervisor on the machine; at the end of the block it stops, if it has not."""
    supervisor = Supervisor(SETTINGS, machine.start)
    run = asyncio.create_task(supervisor.run())
    yield supervisor, run
    if not run.done():
        supervisor.stop()
        await run
    assert all(process.gone for process in machine.processes)


def only(name: str, manner: object) -> Machine:
    """A machine on which one worker behaves otherwise than the rest."""
    assert callable(manner)
    return Machine(lambda process: manner(process) if process.name == name else begin(process))


@in_virtual_time
async def test_a_worker_that_ends_is_started_again_after_pauses_that_grow_to_a_bound() -> None:
    machine = only("n-2", crash)
    async with running(machine):
        await asyncio.sleep(125)
    assert machine.at["n-2"] == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5, 121.5]
    assert machine.at["n-1"] == [0]


@in_virtual_time
async def test_the_pauses_are_short_again_after_a_worker_has_run_for_a_while() -> None:
    machine = only("n-2", crash)
    async with running(machine):
        await asyncio.sleep(7)
        machine.manner = begin
        await asyncio.sleep(100)
        machine.started["n-2"][-1].end(-KILL)
        await asyncio.sleep(10)
    assert machine.at["n-2"] == [0, 0.5, 1.5, 3.5, 7.5, 107.5]


@in_virtual_time
async def test_a_new_process_is_told_which_runs_of_its_worker_have_ended() -> None:
    machine = only("n-2", crash)
    async with running(machine):
        await asyncio.sleep(10)
    told = machine.runs["n-2"]
    own = [each.own for each in told]
    assert len(set(own)) == len(own) == 5
    assert [each.ended for each in told] == [tuple(own[:number]) for number in range(5)]
    assert machine.runs["n-1"][0].ended == ()


@in_virtual_time
async def test_a_process_that_could_not_be_started_has_no_run() -> None:
    machine = Machine()
    machine.refusals = 1
    async with running(machine):
        await asyncio.sleep(10)
    assert [each.ended for each in machine.runs["n-1"]] == [(), ()]


@in_virtual_time
async def test_the_end_of_a_worker_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    async with running(machine):
        await asyncio.sleep(5)
        machine.started["n-1"][0].end(-KILL)
        await asyncio.sleep(5)
        machine.started["n-2"][0].end(3)
        await asyncio.sleep(5)
        ends = [each for each in caplog.records if each.message == "worker.ended"]
    told = [
        [getattr(each, name) for name in ("worker", "how", "ran_s", "starts_again_in_s")] for each in ends
    ]
    assert told == [["n-1", "killed by SIGKILL", 5.0, 0.5], ["n-2", "exit status 3", 10.0, 0.5]]


@in_virtual_time
async def test_a_worker_that_cannot_start_does_not_stop_the_others() -> None:
    machine = only("n-2", refuse)
    async with running(machine) as (_, run):
        await asyncio.sleep(600)
        assert not run.done()
        assert len(machine.started["n-2"]) > 20
        machine.manner = begin
        await asyncio.sleep(31)
        assert not machine.started["n-2"][-1].gone
        machine.manner = refuse
        machine.started["n-1"][0].end(-KILL)
        await asyncio.sleep(60)
        assert not run.done(), "n-2 has failed to start before, but works now"
        machine.manner = begin


@in_virtual_time
async def test_if_no_worker_can_start_the_supervisor_fails() -> None:
    async with running(Machine(refuse)) as (_, run):
        with pytest.raises(WorkersFailed, match="no worker can start; each has said why"):
            await run


@pytest.mark.parametrize("status", [-signal.SIGSEGV, 1])
@in_virtual_time
async def test_workers_that_crash_are_started_again_even_if_all_do(status: int) -> None:
    machine = Machine(lambda process: crash(process, status))
    async with running(machine) as (_, run):
        await asyncio.sleep(60)
        assert not run.done()
    assert len(machine.started["n-1"]) == len(machine.started["n-2"]) == 7


@in_virtual_time
async def test_a_worker_that_worked_before_may_be_the_last_that_cannot_start() -> None:
    machine = only("n-2", refuse)
    async with running(machine) as (_, run):
        await asyncio.sleep(100)
        machine.manner = refuse
        machine.started["n-1"][0].end(-KILL)
        with pytest.raises(WorkersFailed, match="no worker can start"):
            await run


@in_virtual_time
async def test_a_process_that_the_system_refuses_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.refusals = 3
    async with running(machine):
        await asyncio.sleep(5)
        assert [len(machine.started[name]) for name in ("n-1", "n-2")] == [1, 1]
    hows = [getattr(each, "how", None) for each in caplog.records if each.message == "worker.ended"]
    assert hows == ["could not be started: Resource temporarily unavailable"] * 3


@in_virtual_time
async def test_a_signal_stops_all_workers_at_once_and_waits_for_them() -> None:
    machine = Machine()
    async with running(machine) as (supervisor, run):
        await asyncio.sleep(1)
        for process in machine.processes:
            process.stubborn = True
        supervisor.stop()
        await asyncio.sleep(9)
        assert [process.signals for process in machine.processes] == [[TERM], [TERM]]
        machine.processes[0].end(0)
        await asyncio.sleep(1)
        assert not run.done()
        machine.processes[1].end(0)
        await run
    assert machine.at == {"n-1": [0], "n-2": [0]}


@in_virtual_time
async def test_a_worker_that_does_not_stop_is_killed_and_reported() -> None:
    machine = only("n-2", stubborn)
    async with running(machine) as (supervisor, run):
        await asyncio.sleep(1)
        supervisor.stop()
        with pytest.raises(WorkersFailed, match=r"\(n-2: killed by SIGKILL\)"):
            await run
        assert asyncio.get_running_loop().time() == 1 + SETTINGS.drain_s + 10


@in_virtual_time
async def test_a_second_signal_ends_all_workers() -> None:
    machine = Machine(stubborn)
    async with running(machine) as (supervisor, run):
        await asyncio.sleep(1)
        supervisor.stop()
        await asyncio.sleep(1)
        supervisor.stop()
        with pytest.raises(WorkersFailed, match="n-1: killed by SIGKILL; n-2: killed by SIGKILL"):
            await run
        assert asyncio.get_running_loop().time() == 2


@in_virtual_time
async def test_a_terminal_that_is_closed_twice_ends_no_worker_at_once() -> None:
    machine = Machine(stubborn)
    async with running(machine) as (supervisor, run):
        await asyncio.sleep(1)
        for _ in range(2):
            supervisor.stop(insists=False)
        await asyncio.sleep(1)
        for process in machine.processes:
            process.end(0)
        await run
    assert [process.signals[0] for process in machine.processes] == [TERM, TERM]


@in_virtual_time
async def test_a_worker_that_fails_while_it_stops_is_reported() -> None:
    machine = only("n-1", stubborn)
    async with running(machine) as (supervisor, run):
        await asyncio.sleep(1)
        supervisor.stop()
        machine.started["n-1"][0].end(1)
        with pytest.raises(WorkersFailed, match=r"\(n-1: exit status 1\)"):
            await run


@in_virtual_time
async def test_workers_that_are_being_started_or_wait_for_a_start_stop_as_well() -> None:
    machine = Machine()
    machine.start_takes_s = 1.0
    async with running(machine) as (supervisor, run):
        await asyncio.sleep(0.5)
        supervisor.stop()
        await run
        assert [process.signals for process in machine.processes] == [[TERM], [TERM]]
    machine = only("n-2", crash)
    async with running(machine) as (supervisor, run):
        await asyncio.sleep(40)
        began_at = asyncio.get_running_loop().time()
        supervisor.stop()
        await run
        assert asyncio.get_running_loop().time() == began_at


@in_virtual_time
async def test_a_defect_stops_the_other_workers_and_is_raised() -> None:
    def fail(process: FakeProcess) -> None:
        process.end(0)
        raise ZeroDivisionError

    async with running(only("n-2", fail)) as (_, run):
        with pytest.raises(ZeroDivisionError):
            await run


@in_virtual_time
async def test_a_worker_that_had_not_begun_when_it_was_stopped_ended_well() -> None:
    async with running(Machine(lambda process: None)) as (supervisor, run):
        await asyncio.sleep(0.1)
        supervisor.stop()
        await run


def stubborn(process: FakeProcess) -> None:
    """The worker works, and does not stop when it should."""
    begin(process)
    process.stubborn = True
