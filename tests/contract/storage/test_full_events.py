"""Full of events that wait to be routed: a tenant above its rate costs no other tenant an event."""

import asyncio
import logging

import msgspec
import pytest
from msgspec.structs import replace

from actors.configuration.policy import Rate
from actors.machine.outcome import Answered, Outcome
from actors.ports import Attempt, BatchAttempt
from actors.tenant_settings import TenantSettings
from angarium.node.app import joined_node
from angarium.settings import Settings
from streams.clock import SystemTime
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.nats.answers import Refused, Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.nats.wire_names import DEAD_REASON, EVENT_ID
from tests.contract.support.full_streams import ROOM, STREAM_FULL, install_with_little_room
from tests.support.installation import SHARDS, node_settings
from tests.support.waiting import until, until_true

EVENTS = 240
LIMITED, FREE = (
    "slow",
    next(
        name
        for name in map("t{}".format, range(1000))
        if partition_of(name, SHARDS) == partition_of("slow", SHARDS)
    ),
)
SLOW = TenantSettings(rate=Rate(limit=1, per="hour"))


class Sender:
    """All receivers take what comes."""

    def __init__(self) -> None:
        self.delivered: dict[str, list[str]] = {}

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        self.delivered.setdefault(attempt.receiver, []).extend(event.id for event, _ in attempt.numbered)
        return Answered(status=200, latency_ms=1.0)


@pytest.fixture
async def names(js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Names:
    """Room for some 90 events, and a receiver of each tenant."""
    names = await install_with_little_room(js, prefix, monkeypatch)
    for stream, room in ((names.events, ROOM), (names.deliveries, 100 * ROOM)):
        info = await js.existing_stream(stream)
        await js.stream_update(info.config | {"max_bytes": room})
    for tenant in (LIMITED, FREE):
        configuration = {"url": "https://example.com/", "events": [">"]}
        await js.publish(names.receiver(f"{tenant}.a"), msgspec.json.encode(configuration))
    return names


def limited(names: Names, settings: TenantSettings = SLOW) -> Settings:
    return replace(node_settings(names), tenants={LIMITED: settings})


async def announce(js: JetStream, names: Names, tenant: str, id_: str) -> int:
    """Publish until it is accepted, as a producer does who is refused; returns how often that was."""
    refused = 0
    while True:
        match await js.publish(names.publish_event(tenant, "order"), b"x" * 2000, {EVENT_ID: id_}):
            case Stored():
                return refused
            case Refused(code=code):
                assert code == STREAM_FULL
                refused += 1
                await asyncio.sleep(0.02)


async def ids(js: JetStream, stream: str, subject: str) -> list[str]:
    return [each.headers[EVENT_ID] for each in (await js.read(stream, subject, 1, batch=EVENTS)).messages]


async def test_events_above_a_rate_are_evicted_before_others_are_refused_for_long(
    wire: Wire, js: JetStream, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender()
    published = {tenant: list[str]() for tenant in (LIMITED, FREE)}
    async with joined_node(wire, limited(names), SystemTime(), sender) as node:
        await node.until_ready()
        for number in range(EVENTS):
            tenant = (LIMITED, FREE)[number % 2]
            async with asyncio.timeout(60):
                await announce(js, names, tenant, f"e{number}")
            published[tenant].append(f"e{number}")
        await until(lambda: sender.delivered.get(f"{FREE}.a") == published[FREE])
    letters = (await js.read(names.dead_letters, names.dead(f"{LIMITED}.a"), 1, batch=EVENTS)).messages
    assert {each.headers[DEAD_REASON] for each in letters} == {"evicted"}
    assert {each.data for each in letters} == {b"x" * 2000}
    evicted = [each.headers[EVENT_ID] for each in letters]
    routed = await ids(js, names.deliveries, names.deliveries_to(f"{LIMITED}.a"))
    waiting = await ids(js, names.events, names.events_for(LIMITED))
    assert len(routed) == 1, "a new owner has one token"
    assert len(evicted) > 10
    assert [*routed, *evicted] == published[LIMITED][: len(evicted) + 1], "the oldest of those that wait"
    assert waiting[-1] == published[LIMITED][-1]
    assert set(published[LIMITED][len(evicted) + 1 :]) <= set(waiting)
    assert await ids(js, names.dead_letters, names.dead(f"{FREE}.a")) == []
    told = [each for each in caplog.records if each.message == "routing.evicted"]
    assert sum(vars(each)["events"] for each in told) == len(evicted)
    assert {vars(each)["tenant"] for each in told} == {LIMITED}
    assert all(each.levelno == logging.WARNING for each in told)


async def test_unrouted_events_of_a_tenant_beyond_its_quota_are_evicted(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """The stream is half full. The events of another tenant above its rate stay."""
    quota = TenantSettings(rate=SLOW.rate, backlog_max_bytes=40_000)
    settings = replace(node_settings(names), tenants={LIMITED: quota, FREE: SLOW})
    async with joined_node(wire, settings, SystemTime(), Sender()) as node:
        await node.until_ready()
        for number in range(30):
            for tenant in (LIMITED, FREE):
                assert not await announce(js, names, tenant, f"e{number}")

        async def has_its_quota() -> bool:
            letters = await ids(js, names.dead_letters, names.dead(f"{LIMITED}.a"))
            return 30 - len(letters) - 1 <= 19

        await until_true(has_its_quota)
    letters = await ids(js, names.dead_letters, names.dead(f"{LIMITED}.a"))
    assert letters == [f"e{number}" for number in range(1, len(letters) + 1)]
    assert 36_000 <= (30 - len(letters) - 1) * 2_050 <= 40_000
    assert await ids(js, names.dead_letters, names.dead(f"{FREE}.a")) == []
