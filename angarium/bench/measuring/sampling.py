"""A sampling profiler of CPU: `python -m angarium.bench.measuring.sampling FILE -m MODULE ARGUMENTS…`.

The system's profiling timer (setitimer(2)) looks at the stack every few milliseconds of CPU, which costs the
process nothing that could be measured; a tracing profiler would take more than half of it, and most where
functions are small. Time in C counts for the Python code that comes next.
"""

import atexit
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import msgspec

import angarium

SAMPLE_EVERY_S = 0.002
LINES_SHOWN_MAX = 40
PYTHON = ("-m", "angarium.bench.measuring.sampling")
"""The beginning of the command that runs a node under this tool; the file follows."""

PARTS = {
    "machine": ("actors/",),
    "signing": ("angarium/delivery/signing",),
    "transport": ("angarium/delivery/",),
    "journal": ("streams/journal/",),
    "ack": ("streams/reading/acks",),
    "routing": ("actors/subscriptions", "streams/routing/"),
    "snapshots": ("streams/journal/snapshots", "streams/journal/checkpoint", "angarium/node/shard"),
    "pull": ("streams/reading/",),
}
"""Modules by their part in a delivery; the longest prefix counts. All others work for their callers."""

READING, LOOP = "pull", "event loop"
"""The owners of work that no part called: the connection, which reads pulled messages; everything else."""

_BEGINNINGS = sorted(((each, part) for part, all_of in PARTS.items() for each in all_of),
                     key=lambda pair: -len(pair[0]))  # fmt: skip
_ROOT = Path(angarium.__file__).parents[1]
_INSTALLED = "site-packages"
"""The folder of installed packages, ours included if it is installed."""


class Samples:
    """Counts by part and by function: on top of the stack, and anywhere in it."""

    def __init__(self, *counts: dict[str, int]) -> None:
        self.parts, self.own, self.within = map(Counter[str], counts or ({}, {}, {}))

    def add(self, frame: FrameType | None) -> None:
        """Take a stack, unless its process has not begun to run its event loop."""
        stack = list(_names(frame))
        if any(name.startswith("asyncio/runners") for name in stack):
            self.parts[part_of(stack)] += 1
            self.own[stack[0]] += 1
            self.within.update(set(stack))

    @property
    def counts(self) -> list[Counter[str]]:
        """The counts from which `Samples` is made again."""
        return [self.parts, self.own, self.within]

    def shares(self) -> dict[str, float]:
        """The share of each part, the largest first."""
        return {part: count / self.parts.total() for part, count in self.parts.most_common()}

    def text(self) -> str:
        """The text for a reader: the parts, and the functions that take most."""
        tables = (
            ("by part", self.parts),
            ("time of its own", self.own),
            ("with all that it calls", self.within),
        )
        return "\n".join(_table(title, counts, self.parts.total()) for title, counts in tables)


def recorded(file: Path) -> Samples:
    """Reads the samples that a process left in its file at its end."""
    return Samples(*msgspec.json.decode(file.read_bytes(), type=list[dict[str, int]]))


def part_of(stack: list[str]) -> str:
    """The part that a stack works for, the innermost function first."""
    for name in stack:
        for beginning, part in _BEGINNINGS:
            if name.startswith(beginning):
                return part
    return READING if any(name.startswith("nats/") for name in stack) else LOOP


def _names(frame: FrameType | None) -> Iterator[str]:
    """The name of each frame, the innermost first."""
    while frame is not None:
        yield _name(frame.f_code)
        frame = frame.f_back


@cache
def _name(code: CodeType) -> str:
    """`streams/reading/pull.py:_on_answer`. Cached: splitting a path costs more than all the rest."""
    return f"{source_of(code)}:{code.co_name}"


def source_of(code: CodeType) -> str:
    """`streams/reading/pull.py`, or `nats/aio/client.py`: the file below its root."""
    path = Path(code.co_filename)
    if _INSTALLED in path.parts:
        return Path(*path.parts[path.parts.index(_INSTALLED) + 1 :]).as_posix()
    return (path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else Path(*path.parts[-2:])).as_posix()


def _table(title: str, counts: Counter[str], total: int) -> str:
    rows = (f"{count / total:7.1%}  {name}" for name, count in counts.most_common(LINES_SHOWN_MAX))
    return "\n".join((title, *rows, ""))


def main() -> None:
    """Run a module as `python -m` does, and write the samples at its end."""
    file, module, *arguments = sys.argv[1], sys.argv[3], *sys.argv[4:]
    samples = Samples()
    signal.signal(signal.SIGPROF, lambda _, frame: samples.add(frame))
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_EVERY_S, SAMPLE_EVERY_S)
    atexit.register(lambda: Path(file).write_bytes(msgspec.json.encode(samples.counts)))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
