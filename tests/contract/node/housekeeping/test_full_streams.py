"""Full streams and quotas: receivers that accept nothing lose events, each recorded; no other does."""

import asyncio
from itertools import cycle

import msgspec
import pytest
from msgspec.structs import replace

from actors.tenant_settings import TenantSettings
from angarium.node.app import joined_node
from streams.clock import SystemTime
from streams.installation.topology import Names
from streams.journal.claim import read_shard_record
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.nats.wire import Wire
from streams.nats.wire_names import DEAD_REASON, EVENT_ID
from streams.storage.eviction import samples_of
from tests.contract.support.full_streams import (
    CONFIGURATIONS,
    EVENTS,
    HEALTHY,
    PAUSED,
    Sender,
    install_with_little_room,
    publish,
)
from tests.support.installation import node_settings, shard
from tests.support.waiting import until, until_true


@pytest.fixture
async def names(js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Names:
    return await install_with_little_room(js, prefix, monkeypatch)


async def ids(js: JetStream, stream: str, subject: str) -> list[str]:
    messages = (await js.read(stream, subject, 1, batch=EVENTS)).messages
    assert all(each.headers.get(DEAD_REASON, "evicted") == "evicted" for each in messages)
    return [each.headers[EVENT_ID] for each in messages]


async def test_evictions_from_a_receiver_that_accepts_nothing_are_recorded(
    wire: Wire, js: JetStream, names: Names
) -> None:
    sender = Sender()
    settings = node_settings(names)
    accepted: dict[str, list[str]] = {receiver: [] for receiver in CONFIGURATIONS}
    async with joined_node(wire, settings, SystemTime(), sender) as node:
        await node.until_ready()
        refused = 0
        for number, receiver in zip(range(EVENTS), cycle(CONFIGURATIONS)):
            async with asyncio.timeout(60):
                refused += await publish(js, names, receiver, f"e{number}")
            accepted[receiver].append(f"e{number}")
        await until(lambda: len(sender.delivered) == len(accepted[HEALTHY]))
    assert refused
    assert sender.delivered == accepted.pop(HEALTHY)
    for receiver, published in accepted.items():
        evicted = await ids(js, names.dead_letters, names.dead(receiver))
        waiting = await ids(js, names.deliveries, names.deliveries_to(receiver))
        assert 10 < len(evicted) < len(published)
        assert evicted == published[: len(evicted)]
        assert set(published[len(evicted) :]) <= set(waiting)


async def test_the_backlog_of_a_tenant_costs_another_no_event(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """The other tenant has the oldest events: they keep later ones from being purged by position."""
    quiet = "umbra.paused"
    await js.publish(names.receiver(quiet), msgspec.json.encode(CONFIGURATIONS[PAUSED]))
    sender = Sender()
    async with joined_node(wire, node_settings(names), SystemTime(), sender) as node:
        await node.until_ready()
        for number in range(5):
            await publish(js, names, quiet, f"q{number}")
        refused = 0
        for number in range(EVENTS):
            async with asyncio.timeout(60):
                refused += await publish(js, names, (PAUSED, HEALTHY)[number % 2], f"e{number}")
        await until(lambda: len(sender.delivered) == EVENTS // 2)
    assert refused
    assert await ids(js, names.dead_letters, names.dead(quiet)) == []
    assert await ids(js, names.deliveries, names.deliveries_to(quiet)) == [f"q{each}" for each in range(5)]
    evicted = await ids(js, names.dead_letters, names.dead(PAUSED))
    assert evicted == [f"e{each}" for each in range(0, 2 * len(evicted), 2)]
    assert len(evicted) > 10
    sampled = await samples_of(js, names, await stream_info(js, names.deliveries))
    settled = {
        each.settled_to for each in sampled.samples if each.subject == names.delivery(shard(HEALTHY), HEALTHY)
    }
    marked = (await read_shard_record(js, names, shard(HEALTHY))).marks.deliveries.position
    assert settled == {marked - 1}, "the message of the mark tells whether the stream lost its tail"


async def test_events_of_a_tenant_beyond_its_quota_are_evicted(
    wire: Wire, js: JetStream, names: Names
) -> None:
    quiet = "umbra.paused"
    await js.publish(names.receiver(quiet), msgspec.json.encode(CONFIGURATIONS[PAUSED]))
    settings = replace(node_settings(names), tenants={"acme": TenantSettings(backlog_max_bytes=40_000)})
    async with joined_node(wire, settings, SystemTime(), Sender()) as node:
        await node.until_ready()
        for number in range(25):
            await publish(js, names, PAUSED, f"e{number}")
            await publish(js, names, quiet, f"q{number}")

        async def few_wait() -> bool:
            return len(await ids(js, names.dead_letters, names.dead(PAUSED))) >= 5

        await until_true(few_wait)
    evicted = await ids(js, names.dead_letters, names.dead(PAUSED))
    assert evicted == [f"e{number}" for number in range(len(evicted))]
    assert 30_000 <= (25 - len(evicted)) * 2_000 <= 40_000
    assert await ids(js, names.dead_letters, names.dead(quiet)) == []


async def test_the_oldest_dead_letters_of_a_tenant_beyond_its_quota_are_dropped(
    wire: Wire, js: JetStream, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(node_settings(names), tenants={"acme": TenantSettings(dead_letters_max_bytes=20_000)})
    async with joined_node(wire, settings, SystemTime(), Sender()) as node:
        await node.until_ready()
        for number in range(20):
            await publish(js, names, "acme.unknown", f"e{number}")
            await publish(js, names, "umbra.unknown", f"u{number}")

        async def all_turned_away() -> bool:
            last = [await letters(js, names, f"{each}.unknown") for each in ("acme", "umbra")]
            return "e19" in last[0] and len(last[0]) < 11 and "u19" in last[1]

        await until_true(all_turned_away)
    assert "dead_letters.over_quota" in caplog.messages
    kept = await letters(js, names, "acme.unknown")
    assert kept == [f"e{number}" for number in range(20 - len(kept), 20)]
    assert 6 <= len(kept) <= 10
    assert len(await letters(js, names, "umbra.unknown")) == 20


async def test_the_quota_of_all_others_drops_dead_letters_of_tenants_without_a_table(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """A tenant with a table has its own quotas alone, here none."""
    tenants = {"*": TenantSettings(dead_letters_max_bytes=20_000), "umbra": TenantSettings(weight=2)}
    async with joined_node(
        wire, replace(node_settings(names), tenants=tenants), SystemTime(), Sender()
    ) as node:
        await node.until_ready()
        for number in range(15):
            for tenant in ("acme", "umbra"):
                await publish(js, names, f"{tenant}.unknown", f"e{number}")

        async def few_are_kept() -> bool:
            kept, all_of = [await letters(js, names, f"{each}.unknown") for each in ("acme", "umbra")]
            return kept[-1:] == ["e14"] and len(kept) <= 10 and len(all_of) == 15

        await until_true(few_are_kept)


async def test_the_quota_of_all_others_evicts_events_of_tenants_without_a_table(
    wire: Wire, js: JetStream, names: Names
) -> None:
    other = "other.paused"
    await js.publish(names.receiver(other), msgspec.json.encode(CONFIGURATIONS[PAUSED]))
    tenants = {"*": TenantSettings(backlog_max_bytes=20_000), "acme": TenantSettings(weight=2)}
    async with joined_node(
        wire, replace(node_settings(names), tenants=tenants), SystemTime(), Sender()
    ) as node:
        await node.until_ready()
        for number in range(15):
            for receiver in (PAUSED, other):
                await publish(js, names, receiver, f"e{number}")

        async def few_wait() -> bool:
            return len(await letters(js, names, other)) >= 6

        await until_true(few_wait)
    evicted = await letters(js, names, other)
    assert evicted == [f"e{number}" for number in range(len(evicted))]
    assert len(evicted) <= 8
    assert await letters(js, names, PAUSED) == []


async def letters(js: JetStream, names: Names, receiver: str) -> list[str]:
    found = (await js.read(names.dead_letters, names.dead(receiver), 1, batch=EVENTS)).messages
    return [each.headers[EVENT_ID] for each in found]
