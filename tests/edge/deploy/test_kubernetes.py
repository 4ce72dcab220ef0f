"""The files for Kubernetes: built by kustomize, checked by the published schemas, and what their pods start.

The schemas are those of the PyPI package kubernetes-validate. KEDA's is not among them.
"""

import ipaddress
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from angarium.settings import Settings
from streams.server import binary
from tests.support.processes.commands import ROOT
from tests.support.processes.deployed import check_command, made_secrets, settings_of
from tests.support.processes.roles import DEPLOY

KUBERNETES = DEPLOY / "kubernetes"
KUSTOMIZE = shutil.which("kustomize")
VERSIONS = ("1.30", "1.37")
"""Versions of Kubernetes: one that is years old, and the newest whose schemas are in the package."""
PRIVATE = (
    "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "127.0.0.1", "0.0.0.1",
    "198.18.0.1", "224.0.0.1", "255.255.255.255", "fd00::1", "fe80::1", "::1", "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "168.63.129.16", "192.0.0.1", "192.0.2.1", "192.88.99.1", "198.51.100.1", "203.0.113.1",
    "2001::1", "2001:db8::1", "2002::1", "3fff::1",
)  # fmt: skip
needs_kustomize = pytest.mark.skipif(KUSTOMIZE is None, reason="kustomize is not installed: see .ci/run")
Resource = dict[str, Any]


def built(folder: str) -> list[Resource]:
    """The resources of a folder, as kustomize builds them."""
    assert KUSTOMIZE is not None
    done = subprocess.run((KUSTOMIZE, "build", KUBERNETES / folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(scope="module")
def base() -> list[Resource]:
    return built("base")


def find(resources: list[Resource], kind: str, name: str) -> Resource:
    [found] = (each for each in resources if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def workloads(resources: list[Resource]) -> Iterator[tuple[Resource, Resource]]:
    """Each resource that makes pods, and the pod's specification."""
    for each in resources:
        if each["kind"] in ("Deployment", "Job"):
            yield each, each["spec"]["template"]["spec"]


@needs_kustomize
@pytest.mark.parametrize("version", VERSIONS)
def test_each_resource_is_as_the_schemas_of_kubernetes_say(base: list[Resource], version: str) -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    ).validate
    for each in base:
        validate(each, version, strict=True)


@needs_kustomize
def test_each_pod_is_confined_and_starts_an_existing_command(base: list[Resource]) -> None:
    found = dict[str, list[str]]()
    for resource, pod in workloads(base):
        [container] = pod["containers"]
        found[resource["metadata"]["name"]] = container["args"]
        check_command(container["args"])
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        login, *keys = pod["volumes"]
        assert [each["secret"]["secretName"] for each in keys] in ([], ["angarium-keys"])
        role = {"setup": "operator"}.get(resource["metadata"]["name"], resource["metadata"]["name"])
        assert login["secret"]["secretName"] == f"angarium-{role}"
    assert {name: args[0] for name, args in found.items()} == {
        "api": "api", "ledger": "ledger", "node": "node", "setup": "setup",
    }  # fmt: skip


def test_no_pod_of_a_node_is_killed_while_it_reads_configurations() -> None:
    """`/readyz` is 503 meanwhile; only a rolling update waits for it. The operators' page shows the same."""
    [node, _] = yaml.safe_load_all((KUBERNETES / "base" / "nodes.yaml").read_text())
    pod = node["spec"]["template"]["spec"]
    [container] = pod["containers"]
    probes = {name: each for name, each in container.items() if name.endswith("Probe")}
    paths = {name: each["httpGet"]["path"] for name, each in probes.items()}
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    [example] = re.findall(
        r"```yaml\n(startupProbe:.*?)```", (ROOT / "docs" / "operating.md").read_text(), re.DOTALL
    )
    shown = yaml.safe_load(example)
    assert shown.pop("terminationGracePeriodSeconds") == pod["terminationGracePeriodSeconds"]
    [port] = container["ports"]
    for each in shown.values():
        assert each["httpGet"].pop("port") == port["containerPort"]
    for each in probes.values():
        assert each["httpGet"].pop("port") == port["name"]
    assert shown == probes


@needs_kustomize
def test_a_node_has_time_to_drain_and_one_at_a_time_stops(base: list[Resource]) -> None:
    [variables] = (each["data"] for each in base if each["kind"] == "ConfigMap")
    settings = settings_of(variables)
    assert settings.replicas == 3
    node = find(base, "Deployment", "node")["spec"]
    assert node["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    assert node["template"]["spec"]["terminationGracePeriodSeconds"] > settings.drain_s
    assert find(base, "PodDisruptionBudget", "node")["spec"]["maxUnavailable"] == 1


def reached(resources: list[Resource], labels: dict[str, str], direction: str) -> list[Resource]:
    """The peers that the policies of a pod with these labels let it reach, or reach it."""
    side = {"egress": "to", "ingress": "from"}[direction]
    return [
        peer
        for each in resources
        if each["kind"] == "NetworkPolicy" and selects(each["spec"]["podSelector"], labels)
        for rule in each["spec"].get(direction, ())
        for peer in rule[side]
    ]


def selects(selector: Resource, labels: dict[str, str]) -> bool:
    matches = selector.get("matchLabels", {}).items() <= labels.items()
    return matches and all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", ())
    )


def admits(block: Resource, address: str) -> bool:
    at = ipaddress.ip_address(address)
    within = at in ipaddress.ip_network(block["cidr"])
    return within and not any(at in ipaddress.ip_network(each) for each in block.get("except", ()))


@needs_kustomize
def test_a_node_reaches_no_private_network_but_nats_and_dns(base: list[Resource]) -> None:
    denied = find(base, "NetworkPolicy", "deny-all")["spec"]
    assert denied == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    labels = find(base, "Deployment", "node")["spec"]["template"]["metadata"]["labels"]
    peers = reached(base, labels, "egress")
    blocks = [each["ipBlock"] for each in peers if "ipBlock" in each]
    pods = [each["podSelector"]["matchLabels"] for each in peers if "ipBlock" not in each]
    assert sorted(map(str, pods)) == [
        "{'app.kubernetes.io/name': 'nats'}", "{'k8s-app': 'kube-dns'}",
    ]  # fmt: skip
    assert [each for each in PRIVATE if any(admits(block, each) for block in blocks)] == []
    for public in ("1.1.1.1", "93.184.216.34", "2606:4700::1111"):
        assert any(admits(block, public) for block in blocks), public


@needs_kustomize
@pytest.mark.parametrize("name", ["api", "ledger"])
def test_no_other_process_reaches_any_address_outside(base: list[Resource], name: str) -> None:
    labels = find(base, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
    assert not any("ipBlock" in each for each in reached(base, labels, "egress"))


@needs_kustomize
@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("node", "ANGARIUM_MONITOR"), ("api", "ANGARIUM_API_MONITOR"), ("ledger", "ANGARIUM_LEDGER_MONITOR"),
    ],
)  # fmt: skip
def test_prometheus_finds_and_reaches_the_monitor_of_each_process(
    base: list[Resource], name: str, variable: str
) -> None:
    template = find(base, "Deployment", name)["spec"]["template"]
    found = template["metadata"]["annotations"]
    assert found["prometheus.io/scrape"] == "true"
    port = int(found["prometheus.io/port"])
    assert f" {variable}=0.0.0.0:{port} " in (DEPLOY / "docker" / "Dockerfile").read_text()
    [container] = template["spec"]["containers"]
    assert {"name": "monitor", "containerPort": port} in container["ports"]
    rules = [
        rule
        for each in base
        if each["kind"] == "NetworkPolicy"
        and selects(each["spec"]["podSelector"], template["metadata"]["labels"])
        for rule in each["spec"].get("ingress", ())
    ]
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert {"from": [monitoring], "ports": [{"protocol": "TCP", "port": port}]} in rules


@needs_kustomize
def test_keda_scales_the_nodes_within_the_shards_and_nothing_else_sets_their_number() -> None:
    resources = built("keda")
    scaled = find(resources, "ScaledObject", "node")["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (2, 20)
    assert scaled["maxReplicaCount"] <= Settings(node="n").shards
    assert scaled["scaleTargetRef"] == {"name": "node"}
    assert "replicas" not in find(resources, "Deployment", "node")["spec"]
    for trigger in scaled["triggers"]:
        assert trigger["metadata"]["ignoreNullValues"] == "false"
        assert float(trigger["metadata"]["threshold"]) > 0


def test_nats_server_accepts_what_the_values_of_its_chart_say(tmp_path: Path) -> None:
    """The chart writes JSON around an `include`, next to a cluster of its own."""
    values = yaml.safe_load((KUBERNETES / "nats-values.yaml").read_text())
    assert values["config"]["merge"] == {"zzz$include": "../nats-permissions/permissions.conf"}
    [mount] = values["container"]["patch"]
    [volume] = values["podTemplate"]["patch"]
    assert mount["value"] == {"name": "permissions", "mountPath": "/etc/nats-permissions"}
    assert volume["value"]["name"] == "permissions"
    shutil.copytree(DEPLOY / "nats", tmp_path / "nats-permissions")
    (tmp_path / "nats-config").mkdir()
    cluster = json.dumps({"port": 6222, **values["config"]["cluster"]["merge"]})
    (tmp_path / "nats-config" / "nats.conf").write_text(
        f'{{\n"cluster": {cluster},\n"jetstream": {{"store_dir": "{tmp_path}"}},\n"port": 4222,\n'
        f'"server_name": "nats-0",\ninclude ../nats-permissions/permissions.conf;\n}}\n'
    )
    made_secrets(tmp_path / "secrets", "nats")
    variables = dict(
        line.split("=", 1) for line in (tmp_path / "secrets" / "nats.env").read_text().splitlines()
    )
    checked = subprocess.run(
        (binary.find_nats_server(), "-t", "-c", tmp_path / "nats-config" / "nats.conf"),
        env=variables, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
