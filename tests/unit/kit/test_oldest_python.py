"""The kit runs on the oldest Python that it is for, without any package."""

import subprocess
from pathlib import Path

import pytest

from tests.unit.kit.requests import NOW, SECRET, headers

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
import angarium_receiver.asgi, angarium_receiver.wsgi
from angarium_receiver import *

at = float(sys.argv[2])
kept = {"numbers": MemoryNumbers(), "limiter": TokenBucket(1, 1), "queue": MemoryQueue(1)}
receiver = Receiver(sys.argv[1], **kept, clock=lambda: at, ticks=lambda: at)
given = dict(each.split(": ", 1) for each in sys.argv[3].splitlines())
print(receiver.receive("POST", given, b"{}").status, receiver.receive("POST", given, b"{}").status)
print(receiver.receive("GET", {"angarium-challenge": "c" * 32}, b"").status)
"""


def test_the_kit_runs_on_python_3_9() -> None:
    found = subprocess.run([ROOT / ".ci" / "pythons", "3.9"], capture_output=True, text=True)
    if found.returncode:
        pytest.skip("there is no Python 3.9")
    given = "\n".join(f"{name}: {value}" for name, value in headers(b"{}").items())
    done = subprocess.run(
        [found.stdout.strip(), "-W", "error", "-c", PROGRAM, SECRET, str(NOW), given],
        cwd=ROOT / "kit", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stderr, done.stdout.split()) == ("", ["202", "204", "200"])
