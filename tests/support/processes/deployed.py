"""Checks of the commands, settings and secrets in the files of `deploy/`."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from angarium import settings
from angarium.settings import Settings, unknown_variables
from tests.support.processes.roles import DEPLOY


def made_secrets(directory: Path, *servers: str) -> subprocess.CompletedProcess[str]:
    """Runs the command that makes the passwords of an installation."""
    command = (sys.executable, str(DEPLOY / "nats" / "make_secrets.py"), str(directory), *servers)
    return subprocess.run(command, capture_output=True, text=True)


def check_command(arguments: Sequence[str]) -> None:
    """Checks that `angarium` has this command with these options; its words come before the first option."""
    command = list(takewhile(lambda each: not each.startswith("-"), arguments))
    shown = subprocess.run(
        [sys.executable, "-m", "angarium", *command, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert {each for each in arguments if each.startswith("--")} <= set(re.findall(r"--[a-z-]+", shown))


def settings_of(variables: Mapping[str, str]) -> Settings:
    """The settings that these variables make; without the files that they name, which are secrets."""
    secrets = ("ANGARIUM_CONFIG", "ANGARIUM_KEY_FILE")
    given = {name: value for name, value in variables.items() if name not in secrets}
    assert unknown_variables(given) == []
    return settings.load({}, given)


def seconds(text: str) -> float:
    """The seconds of a duration of a compose file."""
    [(number, unit)] = re.findall(r"(\d+)(s|m)", text)
    return int(number) * {"s": 1, "m": 60}[unit]
