"""The demo as users run it: to its end, from the wheel, and interrupted by Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from angarium.demo.receivers import CAST
from angarium.demo.verdict import PROMISES
from tests.support.processes import wheel

TIMEOUT_S = 100


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment into which `angarium[embedded]` was installed, and nothing else."""
    directory = tmp_path_factory.mktemp("wheel")
    return wheel.install(wheel.build(directory), directory / "venv")


@pytest.fixture
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a package that has the name of one of ours."""
    package = tmp_path_factory.mktemp("project") / "actors"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    return package.parent


def start(tmp_path: Path, *command: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """A variable that the demo has to ignore is set, and its temporary directory is below ours."""
    environ = os.environ | {"TMPDIR": str(tmp_path), "ANGARIUM_PREFIX": "elsewhere"}
    environ.pop("PYTHONPATH", None)
    return subprocess.Popen(
        [*(command or (sys.executable, "-m", "angarium")), "demo"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, cwd=cwd,
    )  # fmt: skip


def processes_of(directory: Path) -> list[str]:
    """The command lines that name something below the directory, where there is a /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # It has ended meanwhile.
        if str(directory) in line:
            found.append(line)
    return found


def test_the_demo_keeps_every_promise_and_leaves_nothing_behind(
    tmp_path: Path, installed: Path, project: Path
) -> None:
    with start(tmp_path, installed, cwd=project) as demo:
        output, errors = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 0, output + errors
    assert errors == ""
    rows = [line.split("\t") for line in output.splitlines() if "\t" in line]
    assert [row[0] for row in rows[1:]] == [role.name for role in CAST]
    counts = [row[2].split(" of ") for row in rows[1:]]
    assert all(accepted == published != "0" for accepted, published in counts)
    assert "redriven 5 letters" in output
    assert "killed with -9" in output
    kept = [line for line in output.splitlines() if line.startswith("kept")]
    assert len(kept) == len(PROMISES)
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


def test_ctrl_c_ends_the_demo_and_everything_that_it_started(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        assert demo.stdout is not None
        while "events are being published" not in demo.stdout.readline():
            assert demo.poll() is None
        assert processes_of(tmp_path) != []
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 130
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []
