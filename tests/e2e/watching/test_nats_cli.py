"""Our state in NATS, readable with the nats CLI that every operator of NATS has."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.buckets.known_configurations import KnownConfigurations
from streams.control_requests.micro_service import Identity, MicroService
from streams.control_requests.requests import ControlRequest, ControlServer, Denied, Granted
from streams.installation.topology import Names
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.server.embedded import EmbeddedServer
from tests.support.installation import install
from tests.support.processes.nats_cli import NatsCli, last_json, needs_nats_cli
from tests.support.waiting import until

pytestmark = needs_nats_cli


class Handler:
    """Owns every receiver."""

    def owns(self, receiver: str) -> bool:
        return True

    async def handle(self, request: ControlRequest) -> Granted | Denied:
        if request.verb == "inspect":
            return Granted({"receiver": request.receiver, "phase": "idle"})
        return Denied("unknown_verb", "there is no such verb")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path, port=0) as server:
        yield server


@pytest.fixture
async def js(server: EmbeddedServer) -> AsyncIterator[JetStream]:
    wire = await connect(ConnectOptions(servers=(server.url,)))
    js = JetStream(wire)
    await js.start()
    yield js
    await js.stop()
    await wire.close()


@pytest.fixture
def cli(server: EmbeddedServer, tmp_path: Path) -> NatsCli:
    return NatsCli(server.url, tmp_path / "config")


@pytest.fixture
async def names(js: JetStream) -> Names:
    return await install(js, "angarium")


@pytest.fixture
async def control(js: JetStream, names: Names) -> AsyncIterator[ControlServer]:
    control = ControlServer(js.wire, names, Handler())
    await control.start()
    yield control
    await control.stop()


@pytest.fixture
async def service(js: JetStream, control: ControlServer) -> AsyncIterator[MicroService]:
    identity = Identity(name="angarium", id="node-1", version="1.2.3", started_at=1700000000.0)
    service = MicroService(js.wire, identity, control.subject, control.totals, lambda: {"shards": 4})
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
async def configurations(js: JetStream, names: Names) -> AsyncIterator[KnownConfigurations]:
    configurations = KnownConfigurations(js, names)
    await configurations.start()
    yield configurations
    await configurations.stop()


async def test_nats_req_inspects_a_receiver(cli: NatsCli, control: ControlServer) -> None:
    output = await cli("req", "angarium.ctl.inspect.a.b", "")
    assert last_json(output) == {"ok": True, "receiver": "a.b", "phase": "idle"}
    output = await cli("req", "angarium.ctl.dance.a.b", "")
    assert last_json(output)["error"]["code"] == "unknown_verb"


async def test_nats_micro_lists_the_nodes(cli: NatsCli, service: MicroService) -> None:
    assert "node-1" in await cli("micro", "ls")
    assert "rtt=" in await cli("micro", "ping", "angarium", "--timeout", "2s")
    assert "angarium.ctl.*.*.*" in await cli("micro", "info", "angarium")
    await cli("req", "angarium.ctl.inspect.a.b", "")
    (stats,) = json.loads(await cli("micro", "stats", "angarium", "--json"))
    (endpoint,) = stats["endpoints"]
    assert (stats["id"], endpoint["num_requests"], endpoint["data"]) == ("node-1", 1, {"shards": 4})


async def test_nats_kv_puts_shows_and_removes_a_configuration(
    cli: NatsCli, configurations: KnownConfigurations
) -> None:
    configuration = '{"url": "https://example.com/hook", "timeout_s": 3}'
    await cli("kv", "put", "angarium_receivers", "acme.billing", configuration)
    await until(lambda: configurations.is_known("acme.billing"))
    policy = configurations.policy("acme.billing")
    assert policy is not None
    assert policy.timeout_s == 3
    await configurations.stored.put("acme.other", b'{"url": "https://example.com/other"}')
    keys = (await cli("kv", "ls", "angarium_receivers")).split()
    assert sorted(keys) == await configurations.stored.keys() == ["acme.billing", "acme.other"]
    shown = await cli("kv", "get", "angarium_receivers", "acme.other", "--raw")
    assert json.loads(shown) == {"url": "https://example.com/other"}
    await cli("kv", "del", "angarium_receivers", "acme.billing", "-f")
    await until(lambda: not configurations.is_known("acme.billing"))
    await configurations.stored.delete("acme.other")
    assert "acme" not in await cli("kv", "ls", "angarium_receivers")


async def test_nats_pub_reaches_a_receiver_with_its_headers(
    cli: NatsCli, js: JetStream, names: Names
) -> None:
    await cli("pub", "angarium.deliver.acme.billing", "hello", "-H", "Nats-Msg-Id:acme-1")
    message = await js.message(names.deliveries, 1)
    assert message is not None
    assert message.subject.endswith(".acme.billing")
    assert (message.data, message.headers) == (b"hello", {"Nats-Msg-Id": "acme-1"})
