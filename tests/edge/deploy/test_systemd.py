"""The systemd units in `deploy/`: what they start, and how far they are confined."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from angarium.settings import Settings
from tests.support.processes.deployed import check_command, made_secrets
from tests.support.processes.roles import DEPLOY

PROGRAM = "/opt/angarium/bin/angarium"
EXPOSURE_MAX = 1.5
"""On systemd's scale, where 10 is a service that is not confined at all."""
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed: `apt install systemd`"
)


UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def unit(path: Path) -> dict[str, list[str]]:
    """The values of each name of a systemd unit."""
    found = dict[str, list[str]]()
    for line in path.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_an_existing_command_with_existing_options(path: Path) -> None:
    (program, command, *options), *_ = [each.split() for each in unit(path)["ExecStart"]]
    assert program == PROGRAM
    check_command([command, *options])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_installed_from_the_root_of_the_clone(path: Path) -> None:
    """All paths of the commands in its comment begin at one directory."""
    comment = [line.removeprefix("#").strip() for line in path.read_text().splitlines() if line[:1] == "#"]
    assert "In the root of the clone, after `make wheel`:" in comment
    (install,) = [line for line in comment if line.startswith("install -m 644 ")]
    assert DEPLOY.parent / install.split()[3] == path


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_reads_the_settings_that_make_secrets_makes(path: Path, tmp_path: Path) -> None:
    [(name, _, source)] = [each.partition(":") for each in unit(path)["LoadCredential"]]
    assert source == f"/etc/angarium/{name}"
    assert f"--config %d/{name} " in unit(path)["ExecStart"][0]
    assert f"install -D -m 600 secrets/{name} {source}\n" in path.read_text()
    assert made_secrets(tmp_path / "secrets").returncode == 0
    assert (tmp_path / "secrets" / name).exists()


def test_all_units_are_hardened_alike() -> None:
    hardening = [path.read_text().partition("\nDynamicUser")[2] for path in UNITS]
    assert len(hardening) == 3
    assert hardening[0]
    assert len(set(hardening)) == 1


@needs_systemd
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_understands_a_unit_and_rates_it_as_confined(path: Path, tmp_path: Path) -> None:
    here = tmp_path / path.name
    here.write_text(path.read_text().replace(PROGRAM, sys.executable))
    understood = analyze("verify", here)
    assert (understood.returncode, understood.stdout + understood.stderr) == (0, "")
    rated = analyze("security", "--offline=yes", f"--threshold={EXPOSURE_MAX * 10:.0f}", here)
    assert rated.returncode == 0, rated.stdout
    here.write_text(path.read_text().partition("\nDynamicUser")[0])
    assert analyze("security", "--offline=yes", f"--threshold={EXPOSURE_MAX * 10:.0f}", here).returncode != 0


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs systemd-analyze."""
    return subprocess.run(("systemd-analyze", "--no-pager", *arguments), capture_output=True, text=True)


def test_systemd_waits_longer_than_a_node_drains() -> None:
    [limit] = unit(DEPLOY / "systemd" / "angarium.service")["TimeoutStopSec"]
    assert int(limit) > Settings(node="n").drain_s
