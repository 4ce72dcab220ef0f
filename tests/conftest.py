"""Rules for all tests: none tells a secret, and hypothesis judges values, never times.

Hypothesis draws the same values each time, so that a run fails for what was changed and for nothing else.
With `HYPOTHESIS_PROFILE=search` it draws others, and many more of them.

A shell lets what it starts in the background ignore Ctrl-C, and so does all that is started from there. Here
it counts again, since some tests send it to what they start.
"""

import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.support.secrecy import secrets_in

GARBAGE_AT = 10_000
"""Objects after which it is looked for; after the usual 700, that takes 8 % of the time of unit tests."""

pytest_plugins = ("tests.support.workers",)

settings.register_profile("repeat", deadline=None, print_blob=True, derandomize=True, max_examples=50)
settings.register_profile("search", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()


def pytest_collection_finish() -> None:
    """Leave out what is imported and collected when garbage is looked for: it stays until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_AT)
    gc.enable()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Report sockets and tasks that the tests of a module left open with its last test."""
    if nextitem is None:
        gc.collect()
    elif nextitem.path != item.path:
        gc.collect(1)  # Not what has been there for long: whole syntax trees have, in the tests of the house.


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that passed fails all the same where a secret was printed or logged meanwhile."""
    report = yield
    secrets = secrets_in("\n".join(text for _, text in report.sections))
    if report.passed and secrets:
        report.outcome = "failed"
        report.longrepr = f"secrets were printed or logged: {secrets}"
    return report
