"""A worker and its supervisor: requests over their socket, and a pipe whose end is the worker's."""

import asyncio
import gc
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from angarium.http_server import Answer, Pending, Received, Reply, serve_connected
from angarium.settings import Settings
from angarium.workers.monitor_client import MonitorClient
from angarium.workers.supervisor_pipe import line_for_worker
from angarium.workers.worker_process import WorkerProcess
from streams.fleet.process_runs import ProcessRuns

SOON_S = 0.05
LATE_S = 60.0
SETTINGS = Settings(node="n-1", nats=("nats://user:hush@a:4222",), workers=2, drain_s=0.0)
WORKER = """
import signal, sys, threading
from angarium.workers import supervisor_pipe
supervisor_pipe.STOP_MARGIN_S = 0.2
signal.signal(signal.SIGTERM, {on_sigterm})
print(supervisor_pipe.join_supervisor()[0].node, flush=True)
threading.Event().wait()
"""


@asynccontextmanager
async def asking(answer: Answer) -> AsyncIterator[MonitorClient]:
    ours, theirs = socket.socketpair()
    served = await serve_connected(theirs, answer)
    client = await MonitorClient.over(ours)
    try:
        yield client
    finally:
        served.close()
        client.close()


def echo(received: Received) -> Reply:
    return Reply(200 if received.path == "/good" else 503, body=received.path.encode())


async def test_each_question_gets_its_own_answer() -> None:
    async with asking(echo) as client:
        assert not client.has_answered
        answers = await asyncio.gather(*(client.ask(path, LATE_S) for path in ("/good", "/bad", "/good")))
        told = [(answer.status, answer.body) for answer in answers if answer is not None]
        assert told == [(200, b"/good"), (503, b"/bad"), (200, b"/good")]
        assert client.has_answered


async def test_a_late_answer_is_not_taken_for_that_to_another_question() -> None:
    held: dict[str, Pending] = {
        path: asyncio.get_running_loop().create_future() for path in ("/first", "/second")
    }

    def answer(received: Received) -> Pending:
        return held[received.path]

    async with asking(answer) as client:
        assert await client.ask("/first", SOON_S) is None
        second = asyncio.create_task(client.ask("/second", LATE_S))
        again = asyncio.create_task(client.ask("/first", LATE_S))
        await asyncio.sleep(0)
        held["/first"].set_result(Reply(body=b"first"))
        held["/second"].set_result(Reply(body=b"second"))
        replies = await asyncio.gather(second, again)
        assert [reply and reply.body for reply in replies] == [b"second", b"first"]


async def test_the_end_of_the_worker_is_the_end_of_what_was_asked() -> None:
    ours, theirs = socket.socketpair()
    client = await MonitorClient.over(ours)
    asked = [asyncio.create_task(client.ask(path, LATE_S)) for path in ("/a", "/b")]
    await asyncio.sleep(0)
    theirs.close()
    assert await asyncio.gather(*asked) == [None, None]
    assert await client.ask("/a", LATE_S) is None


def ended(on_sigterm: str) -> int:
    """Start a worker, let its supervisor go, and return how the worker ended."""
    command = [sys.executable, "-c", WORKER.format(on_sigterm=on_sigterm)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(line_for_worker(SETTINGS, ProcessRuns()))
        worker.stdin.flush()
        assert worker.stdout.readline() == b"n-1\n"
        assert worker.poll() is None
        worker.stdin.close()
        return worker.wait(LATE_S)


def test_a_worker_whose_supervisor_has_gone_stops() -> None:
    assert ended("lambda *_: sys.exit(7)") == 7


def test_a_worker_that_hangs_when_its_supervisor_has_gone_is_killed() -> None:
    assert ended("signal.SIG_IGN") == -signal.SIGKILL


async def test_a_process_that_cannot_be_started_leaves_no_socket_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("angarium.package_check.python", lambda: ("/nowhere/python",))
    with pytest.raises(FileNotFoundError):
        await WorkerProcess.start(SETTINGS, ProcessRuns())
    gc.collect()  # An open socket would warn.
