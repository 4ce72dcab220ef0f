"""The compose file: its syntax by the specification's own program, and what its services start."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from streams.server import binary
from tests.support.processes.deployed import check_command, made_secrets, seconds, settings_of
from tests.support.processes.roles import DEPLOY

COMPOSE = DEPLOY / "compose"
COMPOSE_SPEC = shutil.which("compose-spec")
SERVICES: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
ANGARIUM = sorted(name for name, service in SERVICES.items() if service["image"].startswith("angarium:"))


@pytest.mark.skipif(COMPOSE_SPEC is None, reason="the program of the compose specification is not installed")
def test_the_file_is_as_the_compose_specification_says() -> None:
    assert COMPOSE_SPEC is not None
    command = (COMPOSE_SPEC, "-format", "json", "compose.yaml")
    done = subprocess.run(command, cwd=COMPOSE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    model = json.loads(done.stdout)
    assert model["services"].keys() == SERVICES.keys()
    for service in model["services"].values():
        for mount in service.get("volumes", ()):
            assert mount["type"] == "volume" or os.path.isdir(mount["source"]), mount
        if build := service.get("build"):
            assert (Path(build["context"]) / build["dockerfile"]).is_file()


@pytest.mark.parametrize("name", ANGARIUM)
def test_a_service_starts_an_existing_command_with_existing_settings(name: str) -> None:
    service = SERVICES[name]
    check_command(service.get("command", ["node"]))
    settings = settings_of(service["environment"])
    assert settings.replicas == 3
    assert seconds(service["stop_grace_period"]) > settings.drain_s


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_may_write_nothing_but_its_volumes_and_has_no_capability(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"cap_add", "privileged", "network_mode", "pid"} & service.keys()


def test_each_secret_is_one_that_is_made_and_each_service_has_that_of_its_own_role(tmp_path: Path) -> None:
    made_secrets(tmp_path)
    secrets = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["secrets"]
    for secret in secrets.values():
        assert (tmp_path / Path(secret["file"]).name).is_file()
        assert Path(secret["file"]).parent == Path("secrets")
    roles = {name: SERVICES[name]["secrets"][0]["source"] for name in ANGARIUM}
    assert roles == {
        "api": "api", "ledger": "ledger", "node": "node", "operator": "operator", "setup": "operator",
    }  # fmt: skip
    sealing = {name for name in ANGARIUM if "keys" in SERVICES[name]["secrets"]}
    assert sealing == {"api", "node", "operator"}
    assert sealing == {name for name in ANGARIUM if "ANGARIUM_KEY_FILE" in SERVICES[name]["environment"]}


def test_the_command_of_the_nats_services_starts_nats_server_with_its_passwords(tmp_path: Path) -> None:
    made_secrets(tmp_path)
    for name in ("nats-1", "nats-2", "nats-3"):
        service = SERVICES[name]
        assert service["environment"] == {"NATS_NAME": name}
        [command] = service["command"]
        here = command.replace("/run/secrets", str(tmp_path)).replace("/etc/angarium", str(DEPLOY / "nats"))
        here = here.replace("exec nats-server", f"exec {binary.find_nats_server()} -t")
        done = subprocess.run(
            (*service["entrypoint"], here), env={"NATS_NAME": name}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"nats:\d+\.\d+\.\d+-alpine@sha256:[0-9a-f]{64}", SERVICES["nats-1"]["image"])


def test_nodes_alone_reach_the_receivers_and_nats_is_not_reached_from_outside() -> None:
    networks = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["networks"]
    assert [name for name, network in networks.items() if network.get("internal")] == ["nats"]
    outside = {name: set(service["networks"]) - {"nats"} for name, service in SERVICES.items()}
    assert {name: seen for name, seen in outside.items() if seen} == {"node": {"receivers"}, "api": {"proxy"}}
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"api"}
