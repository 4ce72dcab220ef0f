"""The load of the chaos tests, and the table of their results."""

import random
from collections.abc import Callable

import pytest

from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import MANY_RECEIVERS
from tests.support.fleet.trial import Trial, begin

HERE = "tests/e2e/chaos/"

Saw = Callable[[str], None]


@pytest.fixture
def saw(record_property: Callable[[str, object], None]) -> Saw:
    """Takes what the table of results is to tell."""
    return lambda seen: record_property("seen", seen)


@pytest.fixture
async def trial(replicated_fleet: Fleet, rng: random.Random, saw: Saw) -> Trial:
    """40 receivers on a fleet of three servers without a node so far; no event flows yet."""
    return await begin(replicated_fleet, rng, saw)


@pytest.fixture
async def wide_trial(replicated_fleet: Fleet, rng: random.Random, saw: Saw) -> Trial:
    """A trial with 300 receivers."""
    return await begin(replicated_fleet, rng, saw, MANY_RECEIVERS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each failure that was tried: if the promises held, and what was seen."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.nodeid.startswith(HERE) and report.when == "call"
    ]
    if reports:
        terminalreporter.section("failures of a fleet on three servers")
    for report in reports:
        name = report.nodeid.removeprefix(HERE).partition("::")[2].removeprefix("test_").replace("_", " ")
        seen = "; ".join(str(value) for key, value in report.user_properties if key == "seen")
        verdict = "held" if report.passed else "BROKEN"
        terminalreporter.write_line(f"{verdict:7}{report.duration:4.0f} s  {name}: {seen}")
