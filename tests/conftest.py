"""What holds for all tests: none tells a secret, and hypothesis judges values, never times.

Hypothesis draws the same values each time, so that a run fails for what was changed and for nothing else.
With `HYPOTHESIS_PROFILE=search` it draws others, and many more of them.

A shell lets what it starts in the background ignore Ctrl-C, and so does all that is started from there. Here
it counts again, since some tests send it to what they start.
"""

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.secrecy import told

settings.register_profile("repeat", deadline=None, print_blob=True, derandomize=True, max_examples=50)
settings.register_profile("search", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that passed fails all the same where a secret was printed or logged meanwhile."""
    report = yield
    secrets = told("\n".join(text for _, text in report.sections))
    if report.passed and secrets:
        report.outcome = "failed"
        report.longrepr = f"secrets were printed or logged: {secrets}"
    return report
