"""The workers that run these tests: every test counts once, however its worker ends."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = """
import os, sys, time
from pathlib import Path
import pytest

@pytest.fixture(scope="module")
def shared():
    yield
    Path("torn-down").touch()

def test_first(shared, tmp_path):
    (tmp_path / "file").write_text("it has a directory")
    Path("worker").write_text(str(os.getpid()))

@pytest.mark.parametrize("number", range(60))
def test_many(shared, number):
    assert number != 7, "seven"

def test_skipped():
    print("on its way")
    pytest.skip("not today")
"""
CTRL_C = """
import os, signal, time
from pathlib import Path
import pytest

@pytest.fixture
def started():
    yield
    Path("ended").touch()

def test_that_is_interrupted(started):
    os.killpg(0, signal.SIGINT)
    time.sleep(60)
"""
DEATH = """
import os

def test_nothing():
    pass

def test_that_kills():
    os.kill(os.getpid(), 9)
"""


def test_each_test_is_reported_once(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS)
    assert done.returncode == 1, done.stdout
    assert "AssertionError: seven" in done.stdout
    assert "1 failed, 60 passed, 1 skipped" in done.stdout
    assert (tmp_path / "torn-down").exists()


def test_no_test_is_run_by_the_process_that_collected(tmp_path: Path) -> None:
    script = f"{TESTS}\n\ndef test_where():\n    assert os.getppid() == int(os.environ['COLLECTED'])\n"
    program = "import os, sys, pytest; os.environ['COLLECTED'] = str(os.getpid()); sys.exit(pytest.main())"
    assert "test_where" not in run(tmp_path, script, "-c", program).stdout


def test_a_worker_that_dies_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, DEATH)
    assert done.returncode == 1, done.stdout
    assert "a worker ended with status -9 in test_it.py::test_that_kills" in done.stdout


def test_ctrl_c_ends_what_a_test_has_started(tmp_path: Path) -> None:
    assert run(tmp_path, CTRL_C).returncode == pytest.ExitCode.INTERRUPTED
    assert (tmp_path / "ended").exists()


def test_a_first_failure_ends_a_run_that_is_to_end_with_it(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS.replace("range(60)", "range(3000)"), "-m", "pytest", "-x")
    assert done.returncode == 1, done.stdout
    assert "stopping after 1 failures" in done.stdout


def run(directory: Path, tests: str, *how: str) -> subprocess.CompletedProcess[str]:
    """Run tests in a directory of their own, in two workers."""
    (directory / "test_it.py").write_text(tests)
    arguments = how or ("-m", "pytest")
    return subprocess.run(
        (sys.executable, *arguments, "-p", "tests.support.workers", "--workers", "2", "-q"),
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=directory,
        start_new_session=True,
        capture_output=True,
        text=True,
    )
