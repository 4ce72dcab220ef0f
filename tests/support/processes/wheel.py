"""The wheel, and an environment with nothing but it and its requirements.

Nothing is fetched: the required distributions are linked from the environment that runs the tests.
"""

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.processes.commands import ROOT

EXTRA = "embedded"


def build(directory: Path, source: Path = ROOT) -> Path:
    """Builds the wheel; returns its path."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=source)
    [wheel] = directory.glob("*.whl")
    return wheel


def install(wheel: Path, directory: Path) -> Path:
    """Makes an environment with `angarium[embedded]` from the wheel; returns its command `angarium`."""
    run(sys.executable, "-m", "venv", "--without-pip", directory)
    commands = directory / "bin"
    python = commands / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    [site] = directory.glob("lib/python*/site-packages")
    [angarium] = distributions(name="angarium", path=[str(site)])
    for each in {each.name: each for each in _required(angarium, {EXTRA}, set())}.values():
        _link(each, site, commands)
    return commands / "angarium"


def _required(of: Distribution, extras: set[str], seen: set[str]) -> Iterator[Distribution]:
    """All distributions that one requires, and those that these require."""
    for text in of.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""})
        asked = f"{requirement.name}{sorted(requirement.extras)}"
        if wanted and asked not in seen:
            seen.add(asked)
            found = distribution(requirement.name)
            yield found
            yield from _required(found, requirement.extras, seen)


def _link(what: Distribution, site: Path, commands: Path) -> None:
    """Links the packages and the programs of a distribution."""
    tops = {file.parts[0] for file in what.files or []} - {"..", "__pycache__"}
    links = {site / top: Path(str(what.locate_file(top))) for top in tops}
    for file in what.files or []:
        program = Path(str(what.locate_file(file)))
        if file.parts[0] == ".." and program.parent.name == "bin":
            links[commands / program.name] = program
    for link, target in links.items():
        if not link.exists():
            link.symlink_to(target.resolve())


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Runs a command that succeeds; returns what it printed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
