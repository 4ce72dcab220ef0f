"""The order of the tests for several workers: parts of modules in two queues.

Tests of real processes wait most of the time, and all others compute. A queue of each lets half of the
workers begin with either, so that all processors are busy. In each queue those that take long come first: a
worker that begins one of them last would let the others wait for it.
"""

from collections.abc import Sequence
from itertools import groupby

AT_ONCE = 25
"""Tests of a module that one worker takes at once: they share a server."""

WHOLE = "tests/test_house.py"
"""The module that is never cut: each worker with tests of the house reads all of it."""

LONG = 2
"""A module of real processes with so few tests is cut into single ones: each takes long."""

WAITING = (
    "tests/e2e/commands/test_demo.py", "tests/e2e/speed/", "tests/e2e/crashes/", "tests/e2e/delivery/",
    "tests/e2e/",
)  # fmt: skip
"""Beginnings of the paths of tests that wait, the longest first."""

COMPUTING = (WHOLE, "tests/sim/", "tests/contract/", "tests/edge/", "")
"""Beginnings of the paths of tests that compute, the longest first."""


def pieces(tests: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
    """Cut and order tests, named `path::…`: the indices in pieces of those that wait, and that compute."""
    waiting = list[tuple[int, list[int]]]()
    computing = list[tuple[int, list[int]]]()
    for path, group in groupby(range(len(tests)), lambda index: tests[index].split("::")[0]):
        module = list(group)
        if path.startswith(WAITING):
            waiting += [(_rank(path, WAITING), each) for each in _cut(module, len(module) > LONG)]
        elif path == WHOLE:
            computing.append((_rank(path, COMPUTING), module))
        else:
            computing += [(_rank(path, COMPUTING), each) for each in _cut(module, shared=True)]
    return _sorted(waiting), _sorted(computing)


def _rank(path: str, beginnings: tuple[str, ...]) -> int:
    return next(number for number, each in enumerate(beginnings) if path.startswith(each))


def _cut(module: list[int], shared: bool) -> list[list[int]]:
    at_once = AT_ONCE if shared else 1
    return [module[first : first + at_once] for first in range(0, len(module), at_once)]


def _sorted(ranked: list[tuple[int, list[int]]]) -> list[list[int]]:
    return [piece for _, piece in sorted(ranked, key=lambda each: each[0])]
