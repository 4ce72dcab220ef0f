"""Runs the tests in several processes: forks of one that has imported and collected all tests.

With pytest-xdist each process imports and collects everything for itself, and each report passes through the
loops of messages of two processes: for six processes and 6,000 tests that takes a tenth of what all tests
take. It still runs the tests with coverage, which knows it.

Workers take pieces of modules (`order.py`) from two pipes, until both are empty. Half of them begin with the
tests that wait most of the time, the others with those that keep a processor busy.
"""

import os
import signal
import traceback
from collections.abc import Iterable
from itertools import chain, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

from tests.support.order import pieces

NUMBER_BYTES = 4
PIPE_BYTES = 1 << 16
"""Bytes that Linux keeps in a pipe that is not read."""
CTRL_C = {signal.SIGINT}
WORKER = "worker-"
"""Beginning of the names of the workers' directories for temporary files."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="processes that run the tests; 0: this one")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run what was collected in a number of forks; leaves it to pytest if none are requested."""
    options = session.config.option
    if not options.workers or options.collectonly or session.testsfailed:
        return None
    run = _Run(session)
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, CTRL_C)  # Between a fork and its `try` nothing would end it.
        for number in range(options.workers):
            run.fork(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CTRL_C)
        run.listen()
    finally:
        run.end()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    return True


class _Run:
    """The side of the process that has collected, and prints."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = session.items
        self._queues = [_Queue(each) for each in pieces([item.nodeid for item in self._items])]
        self._workers: dict[Connection, int] = {}
        self._left = set(range(len(self._items)))
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    def fork(self, number: int) -> None:
        """Start a worker."""
        ours, theirs = Pipe(duplex=False)
        if pid := os.fork():
            theirs.close()
            self._workers[ours] = pid
            return
        for each in (ours, *self._workers):
            each.close()
        first = number % len(self._queues)
        queues = self._queues[first:] + self._queues[:first]
        _work(self._session, number, chain.from_iterable(queue.items() for queue in queues), theirs)

    def listen(self) -> None:
        """Report what the workers report, until all have ended and every test has."""
        under_way = dict[Connection, int]()
        while self._workers and not self._session.shouldfail:
            for worker in wait(list(self._workers)):
                assert isinstance(worker, Connection)
                try:
                    under_way[worker], reports = worker.recv()
                except EOFError:
                    self._buried(worker, under_way.get(worker))
                    continue
                for report in reports:
                    self._session.config.hook.pytest_runtest_logreport(report=report)
                if reports:
                    self._left.remove(under_way.pop(worker))
        if self._left and not self._session.shouldfail:
            self._session.shouldfail = f"{len(self._left)} tests were not run"

    def end(self) -> None:
        """Let no worker take another test, and wait for those that run."""
        for queue in self._queues:
            queue.empty()
        for worker in list(self._workers):
            worker.close()
            os.waitpid(self._workers.pop(worker), 0)

    def _buried(self, worker: Connection, index: int | None) -> None:
        """A worker has ended; it has failed if it did so in a test."""
        worker.close()
        status = os.waitstatus_to_exitcode(os.waitpid(self._workers.pop(worker), 0)[1])
        if status or index is not None:
            where = "outside of tests" if index is None else f"in {self._items[index].nodeid}"
            self._session.shouldfail = f"a worker ended with status {status} {where}"


class _Queue:
    """Pieces of which any process takes the next."""

    def __init__(self, pieces: list[list[int]]) -> None:
        self._pieces = pieces
        self._numbers, put = os.pipe()
        text = b"".join(number.to_bytes(NUMBER_BYTES, "big") for number in range(len(pieces)))
        assert len(text) <= PIPE_BYTES
        os.write(put, text)
        os.close(put)

    def items(self) -> Iterable[int]:
        """The indices of items, as long as there are pieces."""
        while number := os.read(self._numbers, NUMBER_BYTES):
            yield from self._pieces[int.from_bytes(number, "big")]

    def empty(self) -> None:
        """Take all pieces that are left, and close it."""
        while os.read(self._numbers, PIPE_BYTES):
            pass
        os.close(self._numbers)


class _Relay:
    """Takes the place of the terminal in a worker: it sends all reports of a test at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reports: list[pytest.TestReport] = []

    def begin(self, index: int) -> None:
        """Tell which test comes: if the worker dies, it was that one."""
        self._connection.send((index, ()))

    def end(self, index: int) -> None:
        """Tell how it went."""
        self._connection.send((index, self._reports))
        self._reports = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)


def _work(session: pytest.Session, number: int, taken: Iterable[int], connection: Connection) -> NoReturn:
    """Run tests in this fork, and leave alone at the end what belongs to the process that was forked."""
    status = 1
    plugins, protocol = session.config.pluginmanager, session.config.hook.pytest_runtest_protocol
    capture: Any = plugins.get_plugin("capturemanager")
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CTRL_C)
        plugins.unregister(name="terminalreporter")
        relay = _Relay(connection)
        plugins.register(relay)
        if capture:  # All forks would write into one file.
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture()
        files: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]
        files._basetemp = files.mktemp(f"{WORKER}{number}", numbered=False)
        for index, following in pairwise(chain(taken, (None,))):
            assert index is not None
            relay.begin(index)
            protocol(
                item=session.items[index], nextitem=None if following is None else session.items[following]
            )
            relay.end(index)
        status = 0
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)  # What the tests started ends, as in pytest itself.
    except BaseException:
        if capture:
            capture.stop_global_capturing()
        traceback.print_exc()
    finally:
        os._exit(status)
