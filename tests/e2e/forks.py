"""Commands in processes of their own that need not be imported each: forks of one process that has them all.

To import what a command needs takes ten times as long as what the command does. So one process imports it
once; for each command it forks, and the fork gets the directory, the environment, the arguments and the
descriptors of whoever asked, runs the command, and exits. What only a fresh process can show is shown by the
pages of the documentation, whose commands are typed into a shell, and by all that stays, as a node does.
"""

import atexit
import gc
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

REQUEST_MAX = 1 << 20


class Forks:
    """Runs commands, one at a time, as forks of a process that is started with the first one."""

    def __init__(self, root: Path, without: str) -> None:
        """`root`: of the tree; `without` names a package that is not to be found."""
        self._root = root
        self._without = without
        self._one_at_a_time = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self._close)

    def run(
        self,
        arguments: list[str],
        stdin: bytes,
        directory: Path,
        environment: dict[str, str],
        patience_s: float,
    ) -> subprocess.CompletedProcess[bytes]:
        """What `subprocess.run` would make of it; `TimeoutExpired` also ends the process that was forked."""
        with (
            tempfile.TemporaryFile() as into,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            into.write(stdin)
            into.seek(0)
            request = json.dumps([arguments, str(directory), environment])
            with self._one_at_a_time:
                requests = self._started()
                requests.settimeout(patience_s)
                socket.send_fds(
                    requests, [request.encode() + b"\n"], [each.fileno() for each in (into, out, err)]
                )
                with requests.makefile("r") as answers:
                    pid = int(answers.readline())
                    try:
                        status = int(answers.readline())
                    except TimeoutError:
                        os.kill(pid, signal.SIGKILL)
                        answers.close()
                        self._close()
                        raise subprocess.TimeoutExpired(arguments, patience_s) from None
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, status, out.read(), err.read())

    def _started(self) -> socket.socket:
        if self._requests is None:
            self._requests, theirs = socket.socketpair()
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from tests.e2e.forks import serve; serve()", self._without],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                cwd=self._root,
                start_new_session=True,
            )
            theirs.close()
        return self._requests

    def _close(self) -> None:
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()
            self._requests = self._process = None


def serve() -> None:
    """Forks for each request that comes in on descriptor 0, until nobody asks any more."""
    sys.modules[sys.argv[1]] = None  # type: ignore[assignment]
    for package in ("angarium.cli", "angarium.operations", "angarium.terminal", "streams"):
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            import_module(module.name)
    from angarium.cli.main import main

    gc.freeze()
    requests = socket.socket(fileno=os.dup(0))
    while request := _next(requests):
        if not (pid := os.fork()):
            requests.close()
            _become(*request)
            _exit_as(main)
        for descriptor in request[1]:
            os.close(descriptor)
        requests.sendall(b"%d\n" % pid)
        requests.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _next(requests: socket.socket) -> tuple[list[Any], list[int]] | None:
    """The next request and its descriptors; None: there is nobody any more."""
    text, descriptors, _, _ = socket.recv_fds(requests, REQUEST_MAX, 3)
    while text and not text.endswith(b"\n"):
        text += requests.recv(REQUEST_MAX)
    return (json.loads(text), descriptors) if text else None


def _become(request: list[Any], descriptors: list[int]) -> None:
    """Takes the place that was asked for."""
    arguments, directory, environment = request
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments


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
