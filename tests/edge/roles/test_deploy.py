"""The files in `deploy/`: every setting is shown with its default.

What its permissions allow and refuse is in `test_roles.py`.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from angarium import settings
from angarium.settings import Settings
from tests.support.processes.roles import DEPLOY


def test_the_settings_file_shows_every_setting_with_its_default(tmp_path: Path) -> None:
    shown = (DEPLOY / "angarium.toml").read_text()
    fields = msgspec.structs.fields(Settings)
    assert re.findall(r"^#(\w+) = ", shown, re.MULTILINE) == [field.name for field in fields]
    assert tomllib.loads(re.sub(r"^#(?=\w+ = )", "", shown, flags=re.MULTILINE))
    with_default = "|".join(field.name for field in fields if field.default not in (None, msgspec.NODEFAULT))
    config = tmp_path / "angarium.toml"
    config.write_text(re.sub(rf"^#(?=({with_default}) = )", "", shown, flags=re.MULTILINE))
    assert settings.load({"config": str(config), "node": "n"}, {}) == Settings(node="n")


UNITS = sorted(DEPLOY.glob("*.service"))


def unit(path: Path) -> dict[str, list[str]]:
    """The values of each name of a systemd unit."""
    found = dict[str, list[str]]()
    for line in path.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_there_is_with_options_that_it_has(path: Path) -> None:
    (program, command, *options), *_ = [each.split() for each in unit(path)["ExecStart"]]
    assert program == "/opt/angarium/bin/angarium"
    shown = subprocess.run(
        [sys.executable, "-m", "angarium", command, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert {each for each in options if each.startswith("--")} <= set(re.findall(r"--[a-z-]+", shown))
    credentials, _, source = unit(path)["LoadCredential"][0].partition(":")
    assert source == f"/etc/angarium/{credentials}"
    assert unit(path)["Environment"] == [f"ANGARIUM_CREDS=%d/{credentials}"]


def test_all_units_are_hardened_alike() -> None:
    hardening = [path.read_text().partition("\nDynamicUser")[2] for path in UNITS]
    assert len(hardening) == 3
    assert hardening[0]
    assert len(set(hardening)) == 1


def test_the_settings_file_as_it_is_changes_nothing() -> None:
    given = {"config": str(DEPLOY / "angarium.toml"), "node": "n"}
    assert settings.load(given, {}) == Settings(node="n")
