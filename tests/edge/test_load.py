"""Load of an event loop: measured correctly even if other processes compete for its core."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from angarium.node.load import SAMPLE_EVERY_S, ThreadLoad


@pytest.fixture
def rival() -> Iterator[None]:
    """Another process that never sleeps, on the one core that this thread may use meanwhile."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot bind a process to a core")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    process = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=-1)
    assert process.stdout is not None
    process.stdout.read(1)
    yield
    process.kill()
    process.wait()
    process.stdout.close()
    os.sched_setaffinity(0, cores)


def never_sleep(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_a_loop_that_never_sleeps_is_saturated_even_if_it_runs_little(rival: None) -> None:
    saturated, used_s = ThreadLoad(), time.thread_time()
    never_sleep(0.2)
    assert time.thread_time() - used_s < 0.2 * 0.8
    assert saturated()


def test_a_loop_that_sleeps_is_not_saturated() -> None:
    saturated = ThreadLoad()
    time.sleep(SAMPLE_EVERY_S * 20)
    assert not saturated()
