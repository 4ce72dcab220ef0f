"""A newcomer: types in what a page shows, in an empty directory, and compares the output.

Commands that stay (`angarium dev`, a receiver) run until the end of the page, and must have printed by then
what is shown. The ports that everybody uses are exchanged for free ones, so that nothing on this machine is
met or disturbed.

What a `fresh` newcomer types in is run by fresh processes, as it is by everybody. For others our own commands
are forked, which takes a fifth of the time.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from streams.server.free_ports import free_ports
from tests.support.pages.pages import Typed
from tests.support.processes.commands import FORKS, PATIENCE_S, ROOT
from tests.support.processes.forks import SHORTENED, Forked
from tests.support.processes.nats_cli import NATS

NATS_PORT, API_PORT, RECEIVER_PORT, *OTHER_PORTS = "4222", "8080", "9000", "9001", "9002", "9003"
LOOK_S, LOOK_MAX_S = 0.05, 1.0
ANY = "…"

_STAYS = re.compile(
    r"(angarium (dev|listen|node)|python (kit_)?receiver\.py|node receiver\.mjs|\./receiver)\b"
)
_READY = re.compile(r"ready: |listening on ")
_LOOKS = re.compile(
    r"angarium (inspect|doctor|receiver list|event|attempts|history|audit|top)\b|angarium fleet( --shards)?$"
    r"|curl -sS -H \"Authorization: [^\"]+\" '?http\S+$"
    r"|nats (kv (ls|get)|stream (get|subjects)|consumer|micro|req angarium\.ctl)\b"
    r"|curl (?!.* (-X|-d|--data|--json))"
)
"""Commands that only look: they are typed in again until they show what they should."""


RECENT = {"RECENT_SPAN_S": 4.0}
"""Period that forked commands look back on, so that the arrivals of a page's beginning are soon over."""


class _Staying(Struct):
    """A command that runs until the end of the page."""

    typed: Typed
    process: subprocess.Popen[bytes] | Forked
    log: Path


class Newcomer:
    """Made by `newcomer`."""

    def __init__(self, directory: Path, fresh: bool) -> None:
        self._directory = directory
        self._fresh = fresh
        usual = (NATS_PORT, API_PORT, RECEIVER_PORT, *OTHER_PORTS)
        self._ports = dict(zip(usual, map(str, free_ports(len(usual))), strict=True))
        self._staying: list[_Staying] = []
        url = f"nats://127.0.0.1:{self._ports[NATS_PORT]}"
        programs = [Path(sys.executable).parent, *([Path(NATS).parent] if NATS else [])]
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANGARIUM_")},
            "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(_without_aiohttp(directory)), str(ROOT)]),
            "PYTHONUNBUFFERED": "1",
            "XDG_CONFIG_HOME": str(directory / "config"),
            "ANGARIUM_NATS": url,
            "NATS_URL": url,
            SHORTENED: json.dumps(RECENT),
        }
        self._forking = dict(self._environment)
        self._inherited: tuple[int, ...] = ()
        if not fresh:
            commands = directory / "commands"
            commands.mkdir()
            self._forking["PATH"] = os.pathsep.join([str(commands), self._environment["PATH"]])
            self._inherited = (FORKS.write_client(commands / "angarium", PATIENCE_S / 2),)

    def save(self, name: str, source: str) -> None:
        """Put a program into a file."""
        (self._directory / name).write_text(self._here(source))

    def type(self, typed: Typed) -> None:
        """Type in one command. Fails where it does, or shows something else."""
        if _STAYS.match(typed.command):
            self._start(typed)
            return
        deadline, pause_s = time.monotonic() + PATIENCE_S, LOOK_S
        while (unlike := self._unlike(typed)) is not None:
            again = _LOOKS.match(typed.command) and time.monotonic() < deadline
            assert again, f"$ {typed.command}\n{unlike}"
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_MAX_S)

    def end(self) -> None:
        """See that all that stays has shown what it should, and complained of nothing."""
        for each in self._staying:
            self._until_said(each, each.typed.shown)
            assert "Traceback" not in each.log.read_text(), each.log.read_text()

    def leave(self) -> None:
        """End what stays; the nats-server of `angarium dev` ends by itself then."""
        for each in self._staying:
            each.process.send_signal(signal.SIGKILL)
            each.process.wait(PATIENCE_S)

    def _unlike(self, typed: Typed) -> str | None:
        """Returns the terminal's text if the command fails or shows something else, and None otherwise.

        Of our own commands that includes the notes on standard error.
        """
        errors_to = subprocess.STDOUT if typed.command.startswith("angarium ") else subprocess.PIPE
        done = subprocess.run(
            ["bash", "-c", self._here(typed.command)], cwd=self._directory, env=self._forking,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors_to, text=True, timeout=PATIENCE_S,
            pass_fds=self._inherited,
        )  # fmt: skip
        output = self._there(done.stdout)
        return None if done.returncode == 0 and _fits(typed.shown, output) else output + (done.stderr or "")

    def _start(self, typed: Typed) -> None:
        """Start what stays; it is up when it has said so, or printed the first line that is shown."""
        command, _, _ = typed.command.partition(" #")
        match command.split():
            case ["angarium", "dev", *_]:
                command += f" --port {NATS_PORT} --api-port {API_PORT}"
            case ["angarium", "listen", *_]:
                command += f" --port {RECEIVER_PORT}"
        log = self._directory / f"{len(self._staying)}.log"
        self._staying.append(_Staying(typed, self._started(self._here(command), log), log))
        ready = [number for number, line in enumerate(typed.shown, 1) if _READY.match(line)]
        self._until_said(self._staying[-1], typed.shown[: ready[0] if ready else 1])

    def _started(self, command: str, log: Path) -> subprocess.Popen[bytes] | Forked:
        with log.open("wb") as output, open(os.devnull) as nothing:
            match shlex.split(command):
                case ["angarium", *arguments] if not self._fresh:
                    files = [nothing.fileno(), output.fileno(), output.fileno()]
                    return FORKS.start(arguments, files, self._directory, self._environment)
                case _:
                    return subprocess.Popen(
                        ["bash", "-c", f"exec {command}"], cwd=self._directory, env=self._environment,
                        stdin=nothing, stdout=output, stderr=output,
                    )  # fmt: skip

    def _until_said(self, staying: _Staying, shown: list[str]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not _fits([*shown, ANY], self._there(said := staying.log.read_text())):
            assert staying.process.poll() is None, f"$ {staying.typed.command}\n{said}"
            assert time.monotonic() < deadline, f"$ {staying.typed.command}\n{said}"
            time.sleep(LOOK_S)

    def _here(self, text: str) -> str:
        return _exchanged(text, self._ports)

    def _there(self, text: str) -> str:
        return _exchanged(text, {free: usual for usual, free in self._ports.items()})


def _without_aiohttp(directory: Path) -> Path:
    """A place for modules that hides aiohttp, which users have not got either: see `commands.COMMAND`."""
    place = directory / "hidden"
    place.mkdir()
    (place / "aiohttp.py").write_text("raise ImportError\n")
    return place


def _exchanged(text: str, numbers: dict[str, str]) -> str:
    """The text with these numbers in the place of those, all at once: one may be a part of another."""
    return re.sub(r"(?<!\d)\d+(?!\d)", lambda found: numbers.get(found[0], found[0]), text)


@contextmanager
def newcomer(directory: Path, *, fresh: bool = False) -> Iterator[Newcomer]:
    """A newcomer in a directory, who leaves no process running."""
    walker = Newcomer(directory, fresh)
    with ExitStack() as stack:
        stack.callback(walker.leave)
        yield walker
        walker.end()


def _fits(shown: list[str], output: str) -> bool:
    """True if the output is what the page shows; also where the page shows none."""
    pattern = "".join(map(_pattern, shown))
    return not shown or re.fullmatch(pattern, output.rstrip() + "\n") is not None


def _pattern(line: str) -> str:
    return r"(.*\n)*" if line == ANY else ".*".join(map(re.escape, line.split(ANY))) + "\n"
