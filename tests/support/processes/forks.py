"""Processes that start fast: forks of one process that has imported everything.

To import what a command or a node needs takes ten times as long as what most of them do. So one process
imports it once. For each request it forks; the fork gets the directory, the environment, the arguments, the
descriptors and the limit of descriptors of its client, runs the command, and exits. A keeper in between
tells who asked its process id, and how it ended. What only a fresh process can show is shown by the README,
whose commands are typed into a shell, and by `demo`.
"""

import asyncio
import atexit
import gc
import json
import os
import pkgutil
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

REQUEST_MAX = 1 << 20
LOOK_S = 0.01
PACKAGES = ("actors", "streams", "angarium.cli", "angarium.node", "angarium.operations", "angarium.terminal")
PACKAGES_OF = {
    "api": ("angarium.api", "angarium.ledger"),
    "dev": ("angarium.api", "angarium.ledger"),
    "ledger": ("angarium.ledger",),
}
"""Packages that take long and that one command needs; they are imported when it is first run."""
SHORTENED = "TESTS_SHORTENED"
"""The variable, a JSON object, that gives a fork other values of constants of the product, by their names."""

CLOCK = "TESTS_CLOCK"
"""The variable, a JSON array, by which the wall clock of a fork is off: at once, and more at each SIGUSR2."""


class Forked:
    """A process that was forked: its id, and its status as soon as it has ended (negative: the signal)."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self._said = b""
        self.returncode: int | None = None
        while b"\n" not in self._said:
            self._take(answers.recv(100))
        self.pid = int(self._said.split(b"\n")[0])

    def poll(self) -> int | None:
        """The status, or None while it runs."""
        if self.returncode is None:
            self._answers.setblocking(False)
            with suppress(BlockingIOError):
                self._take(self._answers.recv(100))
        return self.returncode

    def wait(self, patience_s: float) -> int:
        """Waits for the end; `TimeoutError` if that takes too long."""
        while self.returncode is None:
            self._answers.settimeout(patience_s)
            self._take(self._answers.recv(100))
        return self.returncode

    async def ended(self) -> int:
        """Waits for the end without blocking the loop."""
        while True:
            if (status := self.poll()) is not None:
                return status
            await asyncio.sleep(LOOK_S)

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _take(self, said: bytes) -> None:
        assert said, "the keeper of a fork was killed"
        self._said += said
        if self._said.count(b"\n") == 2:
            self.returncode = int(self._said.split(b"\n")[1])
            self._answers.close()


_CLIENT = """\
import json, os, resource, signal, socket, sys

limits = resource.getrlimit(resource.RLIMIT_NOFILE)
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), limits])
answers, theirs = socket.socketpair()
socket.send_fds(socket.socket(fileno=requests), [request.encode()], [0, 1, 2, theirs.fileno()])
theirs.close()
answers.settimeout(patience_s)
said = b""
while said.count(b"\\n") < 2:
    try:
        said += answers.recv(100)
    except TimeoutError:
        os.kill(int(said), signal.SIGKILL)
os._exit(int(said.split()[1]) & 255)
"""
"""The client. It imports little: a shell starts it for each command."""


class Forks:
    """Runs commands as forks of a process that is started with the first one, or by `open`.

    Forks of this process share it, and what one of them asks for comes in one piece.
    """

    def __init__(self, root: Path, without: str) -> None:
        """`root`: of the tree; `without` names a package that is not to be found."""
        self._root = root
        self._without = without
        self._one_at_a_time = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def open(self) -> None:
        """Start the process that is forked."""
        with self._one_at_a_time:
            self._started()

    def start(
        self,
        arguments: Sequence[str],
        files: Sequence[int],
        directory: Path,
        environment: dict[str, str],
        descriptors: int | None = None,
    ) -> Forked:
        """Start a command; `files` are to be its descriptors 0, 1 and 2, `descriptors` bounds how many it may
        have open."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE) if descriptors is None else [descriptors] * 2
        request = json.dumps([list(arguments), str(directory), environment, limits])
        answers, theirs = socket.socketpair()
        with self._one_at_a_time, theirs:
            socket.send_fds(self._started(), [request.encode()], [*files, theirs.fileno()])
        return Forked(answers)

    def write_client(self, path: Path, patience_s: float) -> int:
        """Write a program for a shell: it asks for a fork with its arguments and ends as that does.

        Returns the descriptor that the shell has to inherit.
        """
        with self._one_at_a_time:
            requests = self._started().fileno()
        path.write_text(f"#!{sys.executable} -IS\nrequests, patience_s = {requests}, {patience_s}\n{_CLIENT}")
        path.chmod(0o755)
        return requests

    async def start_quiet(
        self,
        arguments: Sequence[str],
        said: Path,
        directory: Path,
        environment: dict[str, str],
        descriptors: int | None = None,
    ) -> Forked:
        """Starts a process that reads no input, and appends its output to the file `said`."""

        def start() -> Forked:
            with open(os.devnull) as nothing, said.open("ab") as log:
                files = [nothing.fileno(), log.fileno(), log.fileno()]
                return self.start(arguments, files, directory, environment, descriptors)

        return await asyncio.to_thread(start)

    def run(
        self,
        arguments: list[str],
        stdin: bytes,
        directory: Path,
        environment: dict[str, str],
        patience_s: float,
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs like `subprocess.run`; `TimeoutExpired` also ends the process that was forked."""
        with (
            tempfile.TemporaryFile() as into,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            into.write(stdin)
            into.seek(0)
            process = self.start(
                arguments, [each.fileno() for each in (into, out, err)], directory, environment
            )
            try:
                status = process.wait(patience_s)
            except TimeoutError:
                process.send_signal(signal.SIGKILL)
                process.wait(patience_s)
                raise subprocess.TimeoutExpired(arguments, patience_s) from None
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, status, out.read(), err.read())

    def _started(self) -> socket.socket:
        if self._requests is None:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve()", self._without],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd=self._root,
                start_new_session=True,
            )
            theirs.close()
        return self._requests

    def close(self) -> None:
        """End the process that is forked, once the forks have ended."""
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()
            self._requests = self._process = None


def serve() -> None:
    """Forks for each request that comes in on descriptor 0, until the last client has gone."""
    sys.modules[sys.argv[1]] = None  # type: ignore[assignment]
    _import(PACKAGES)
    from angarium.cli.main import main

    requests = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # No process waits for the keepers.
    while request := _next(requests):
        for command in request[0][0][:1]:
            _import(PACKAGES_OF.get(command, ()))
        if not os.fork():
            requests.close()
            _keep(main, *request)
        for descriptor in request[1]:
            os.close(descriptor)


def _import(packages: Sequence[str]) -> None:
    """Imports all modules of some packages; no fork has to look at them when it collects garbage."""
    for package in packages:
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            import_module(module.name)
    if packages:
        gc.freeze()


def _next(requests: socket.socket) -> tuple[list[Any], list[int]] | None:
    """The next request and its descriptors; None: the last client has gone."""
    text, descriptors, _, _ = socket.recv_fds(requests, REQUEST_MAX, 4)
    return (json.loads(text), descriptors) if text else None


def _keep(main: Callable[[], None], request: list[Any], descriptors: list[int]) -> NoReturn:
    """Forks the process that was asked for, and tells of it."""
    *files, answers = descriptors
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # Tests that were started with nohup ignore it.
    if not (pid := os.fork()):
        os.close(answers)
        _become(request, files)
        _exit_as(main)
    for descriptor in files:
        os.close(descriptor)
    os.write(answers, b"%d\n" % pid)
    with suppress(BrokenPipeError):  # No client waits for it.
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _become(request: list[Any], files: list[int]) -> None:
    """Takes the place that was asked for."""
    arguments, directory, environment, limits = request
    os.setsid()
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(limits))
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    # No test reaches a receiver that these have signed for, and a node takes 20 ms to read them.
    os.environ.setdefault("SSL_CERT_FILE", os.devnull)
    for name, value in json.loads(environment.get(SHORTENED, "{}")).items():
        _set_constant(name, value)
    if CLOCK in environment:
        _set_clock_off(*json.loads(environment[CLOCK]))
    sys.argv[1:] = arguments


def _set_constant(name: str, value: float) -> None:
    """Set a constant of the product in all modules that have it."""
    ours = ("actors.", "streams.", "angarium.")
    places = [
        module for path, module in sys.modules.items() if path.startswith(ours) and hasattr(module, name)
    ]
    assert places, f"no module has a constant {name}"
    for module in places:
        setattr(module, name, value)


def _set_clock_off(off_s: float, step_s: float) -> None:
    """Let the clock that nodes share be off, and step at each SIGUSR2."""
    from streams.clock import SystemTime

    off = [off_s]

    def step(*_: object) -> None:
        off[0] += step_s

    SystemTime.wall = staticmethod(lambda: time.time() + off[0])
    signal.signal(signal.SIGUSR2, step)


def _exit_as(main: Callable[[], None]) -> NoReturn:
    """Exits with the status of the command, without taking apart all that the command never touched."""
    status = 1
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
