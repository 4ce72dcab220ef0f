"""The release workflow, and the command that makes what it publishes."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import angarium_receiver
import pytest

from angarium import __version__
from tests.support.processes.commands import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
ACTIONLINT = shutil.which("actionlint")


@pytest.mark.skipif(ACTIONLINT is None, reason="actionlint is not installed: see .ci/run")
def test_actionlint_has_nothing_to_say() -> None:
    assert ACTIONLINT is not None
    checked = subprocess.run((ACTIONLINT, WORKFLOW), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_each_action_is_pinned_by_its_commit() -> None:
    used = re.findall(r"uses: (.*)", WORKFLOW.read_text())
    assert len(used) == 7
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each) for each in used)


def test_the_workflow_finds_the_version() -> None:
    [script] = re.findall(r'version="\$\((sed .*)\)"', WORKFLOW.read_text())
    read = subprocess.run(script, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert read.stdout == f"{__version__}\n"


@pytest.mark.soak
def test_a_release_is_made_by_its_command_and_its_wheel_runs_the_demo(tmp_path: Path) -> None:
    made = subprocess.run((ROOT / ".ci" / "release", tmp_path), capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "kept    everything arrived" in made.stdout
    hashes = dict(line.split("  ")[::-1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines())
    names = f"dist/angarium-{__version__}", f"dist/angarium_receiver-{angarium_receiver.__version__}"
    wheels_and_sources = {name + end for name in names for end in ("-py3-none-any.whl", ".tar.gz")}
    assert hashes.keys() == {"angarium.cdx.json"} | wheels_and_sources
    for file, digest in hashes.items():
        assert hashlib.sha256((tmp_path / file).read_bytes()).hexdigest() == digest
    bill = json.loads((tmp_path / "angarium.cdx.json").read_text())
    assert bill["metadata"]["component"]["name"] == "angarium"
    assert {"nats-py", "msgspec", "litestar", "asyncpg"} <= {each["name"] for each in bill["components"]}
