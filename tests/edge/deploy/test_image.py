"""The image in `deploy/docker`: its locked packages, and its steps run by their own commands in a directory.

There need be no container engine: what the Dockerfile copies is copied, what it runs is run.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

from tests.support.free_ports import free_port
from tests.support.processes.commands import PATIENCE_S, ROOT
from tests.support.processes.roles import DEPLOY, Server, serving

DOCKER = DEPLOY / "docker"
EXTRAS = ("api", "ledger", "postgres", "otel")
USER = 65532
HADOLINT = Path(sys.executable).with_name("hadolint")
Instruction = tuple[str, str]


def instructions() -> list[list[Instruction]]:
    """The instructions of each stage of the Dockerfile; those before the first one are a stage, too."""
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    stages: list[list[Instruction]] = [[]]
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line:
            word, _, rest = line.partition(" ")
            if word == "FROM":
                stages.append([])
            stages[-1].append((word, rest))
    return stages


def locked(name: str) -> dict[str, str]:
    """The version of each package in a lock file for Linux."""
    lines = re.findall(r"^([a-z].*?)(?: \\)?$", (DOCKER / name).read_text(), re.MULTILINE)
    found = dict[str, str]()
    for line in lines:
        pinned, _, marker = line.partition(" ; ")
        if not marker or Marker(marker).evaluate({"sys_platform": "linux"}):
            package, _, version = pinned.partition("==")
            found[package] = version
    return found


def test_the_lock_has_the_packages_that_the_project_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = list(project["project"]["dependencies"])
    for extra in EXTRAS:
        wanted += project["project"]["optional-dependencies"][extra]
    for name, requirements in (("image.lock", wanted), ("build.lock", project["build-system"]["requires"])):
        versions = locked(name)
        unmet = [
            text
            for text in requirements
            if (needed := Requirement(text)) and not needed.specifier.contains(versions.get(needed.name, "0"))
        ]
        assert not unmet, f"run `make lock`: {unmet}"


@pytest.mark.parametrize("name", ["image.lock", "build.lock"])
def test_each_locked_package_has_hashes(name: str) -> None:
    blocks = re.split(r"^(?=[a-z])", (DOCKER / name).read_text(), flags=re.MULTILINE)[1:]
    assert blocks
    assert all("    --hash=sha256:" in block for block in blocks)


def test_the_base_is_pinned_and_the_process_has_a_user_of_its_own() -> None:
    [(_, base)], build, image = instructions()
    assert re.fullmatch(r"PYTHON=python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert build[0][1] == "${PYTHON} AS build"
    said = dict(image)
    assert said["FROM"] == "${PYTHON}"
    assert said["USER"] == f"{USER}:{USER}"
    assert json.loads(said["ENTRYPOINT"]) + json.loads(said["CMD"]) == ["angarium", "node"]


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint is not installed: it is in the extra conformance")
def test_hadolint_has_nothing_to_say() -> None:
    checked = subprocess.run((HADOLINT, DOCKER / "Dockerfile"), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """The root of the image's build stage. Other users may enter it, unlike the directories of pytest."""
    with tempfile.TemporaryDirectory() as directory:
        yield build_below(Path(directory))


def build_below(root: Path) -> Path:
    """Runs every step of the build stage as it is written, below a directory."""
    ours = ("ANGARIUM_", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    work, venv = root, f"{sys.executable} -m venv"
    for word, rest in instructions()[1]:
        match word:
            case "ENV":
                given = dict(each.split("=", 1) for each in shlex.split(rest))
                given.pop("PIP_NO_CACHE_DIR")  # It only makes the image smaller.
                environment |= given
            case "WORKDIR":
                work = root / rest.removeprefix("/")
                work.mkdir(parents=True)
            case "COPY":
                *sources, target = shlex.split(rest)
                for source in sources:
                    copy(ROOT / source, work / target)
            case "RUN":
                here = rest.replace("/opt/", f"{root}/opt/").replace("python -m venv", venv)
                done = subprocess.run(
                    here, shell=True, cwd=work, env=environment, capture_output=True, text=True
                )
                assert done.returncode == 0, done.stdout + done.stderr
            case _:
                assert word == "FROM", word
    root.chmod(0o755)
    return root


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.mark.soak
@pytest.mark.skipif(os.getuid() != 0, reason="only root can run the node as the user of the image")
def test_a_node_of_the_image_runs_as_its_user_and_is_healthy(built: Path, server: Server) -> None:
    image = dict(instructions()[2])
    port = free_port()
    given = dict(each.split("=", 1) for each in shlex.split(image["ENV"]))
    environment = given | {
        "PATH": f"{built}/opt/angarium/bin:{os.environ['PATH']}",
        "ANGARIUM_MONITOR": f"127.0.0.1:{port}",
    }
    program = json.loads(image["ENTRYPOINT"])
    as_user = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")

    def run(*arguments: str, role: str) -> subprocess.CompletedProcess[str]:
        env = environment | {"ANGARIUM_NATS": server.url(role)}
        command = (*as_user, *program, *arguments)
        return subprocess.run(command, cwd="/", env=env, capture_output=True, text=True)

    assert run("--version", role="node").returncode == 0
    made = run("setup", "--max-bytes", "64MiB", role="operator")
    assert made.returncode == 0, made.stderr
    health = json.loads(image["HEALTHCHECK"].partition(" CMD ")[2])
    health = [each.replace("9464", str(port)) for each in health]
    assert subprocess.run((*as_user, *health), env=environment, capture_output=True).returncode != 0
    node = subprocess.Popen(
        (*as_user, *program, *json.loads(image["CMD"])),
        cwd="/", env=environment | {"ANGARIUM_NATS": server.url("node")},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE_S
        while subprocess.run((*as_user, *health), env=environment, capture_output=True).returncode:
            assert node.poll() is None
            assert time.monotonic() < deadline
    finally:
        node.terminate()
        assert node.wait(PATIENCE_S) == 0
