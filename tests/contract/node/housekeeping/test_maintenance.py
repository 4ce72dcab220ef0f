"""Rounds of maintenance: a part that fails does not stop the others."""

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from actors.errors import Unusable
from actors.runtime.host import Host
from actors.tenant_settings import TenantSettings
from angarium.node.app import joined_node
from angarium.node.housekeeping import maintenance
from angarium.node.housekeeping.maintenance import Maintenance, RoundPart
from streams.clock import SystemTime
from streams.installation.topology import Names
from streams.nats.answers import Refused, Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.contract.support.little_room import PAUSED, Sender, install_with_little_room
from tests.support.installation import node_settings
from tests.support.waiting import until


@pytest.fixture
async def names(js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Names:
    return await install_with_little_room(js, prefix, monkeypatch)


def recorded(monkeypatch: pytest.MonkeyPatch, name: str, calls: list[str]) -> None:
    """Note each call of a function of the maintenance, in place of the call."""

    async def call(*_: Any) -> int:
        calls.append(name)
        return 0

    monkeypatch.setattr(maintenance, name, call)


@pytest.mark.parametrize("error", [Unusable("not ours"), RuntimeError("not foreseen")])
async def test_each_part_of_a_round_is_done_though_all_others_fail(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch, error: Exception,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """An unreadable record must not keep the streams from being purged of everything else."""
    monkeypatch.setattr(maintenance, "ROUNDS_PER_RECREATION_CHECK", 1)
    parts, done, parts_of = list[str](), set[str](), Maintenance.parts

    def failing(part: RoundPart) -> RoundPart:
        async def fail(*_: Any) -> None:
            done.add(part.name)
            raise error

        return replace(part, work=fail)

    def failing_parts(each: Maintenance) -> tuple[RoundPart, ...]:
        parts[:] = [part.name for part in parts_of(each)]
        return tuple(map(failing, parts_of(each)))

    monkeypatch.setattr(Maintenance, "parts", failing_parts)
    async with joined_node(wire, node_settings(names), SystemTime(), Sender()) as node:
        await node.until_ready()
        await until(lambda: bool(parts) and done == set(parts))
    told = {vars(each)["part"] for each in caplog.records if each.message == "maintenance.failed"}
    assert told == (done if isinstance(error, Unusable) else set())


async def test_dead_letters_are_dropped_by_the_owner_of_shard_0_alone(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node would drop as many."""
    calls = list[str]()
    recorded(monkeypatch, "beyond_quota", calls)
    recorded(monkeypatch, "unrouted_beyond_quota", calls)
    recorded(monkeypatch, "drop_letters_beyond", calls)
    tenant = TenantSettings(backlog_max_bytes=1 << 20, dead_letters_max_bytes=1 << 20)
    settings = replace(node_settings(names), tenants={"acme": tenant})
    epoch_of_shard_0 = Maintenance.epoch_of_shard_0
    monkeypatch.setattr(Maintenance, "epoch_of_shard_0", lambda _: None)
    async with joined_node(wire, settings, SystemTime(), Sender()) as node:
        await node.until_ready()
        await until(lambda: calls.count("beyond_quota") > 3)
        assert "drop_letters_beyond" not in calls
        monkeypatch.setattr(Maintenance, "epoch_of_shard_0", epoch_of_shard_0)
        await until(lambda: "drop_letters_beyond" in calls)


async def test_no_event_gives_way_while_no_dead_letter_can_be_stored(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An event is needed until its dead letter is stored, so no room would be made."""
    rounds, orders = list[str](), list[tuple[str, int]]()
    recorded(monkeypatch, "purge_journal", rounds)
    monkeypatch.setattr(Host, "evict", lambda _, tenant, below: orders.append((tenant, below)))
    letters = await js.existing_stream(names.dead_letters)
    await js.stream_update(letters.config | {"max_bytes": 30_000})
    while isinstance(await js.publish(names.dead("umbra.a"), b"x" * 2000), Stored):
        pass
    tenant = TenantSettings(backlog_max_bytes=10_000)
    settings = replace(node_settings(names), tenants={"acme": tenant})
    async with joined_node(wire, settings, SystemTime(), Sender()) as node:
        await node.until_ready()
        while not isinstance(await js.publish(names.publish_to(PAUSED), b"x" * 2000), Refused):
            pass
        await until(lambda: "storage.full" in caplog.messages)
        rounds.clear()
        await until(lambda: len(rounds) >= 3)
        [told] = {vars(each)["stream"] for each in caplog.records if each.message == "storage.full"}
        assert told == names.dead_letters
        assert not orders
        await js.stream_update(letters.config)
        await until(lambda: {tenant for tenant, _ in orders} == {"acme"})


async def test_strays_are_looked_for_before_settled_messages_are_purged(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A purge of events keeps what came after the look of its own round."""
    calls, looks = list[tuple[str, int]](), count(1)

    def look(stream: str) -> Callable[..., Awaitable[int]]:
        async def looked(*_: object) -> int:
            calls.append((f"look at {stream}", kept_from := next(looks)))
            return kept_from

        return looked

    def purge(stream: str) -> Callable[..., Awaitable[None]]:
        async def purged(*args: Any) -> None:
            calls.append((f"purge {stream}", args[-1] if stream == "events" else 0))

        return purged

    for stream in ("deliveries", "events"):
        monkeypatch.setattr(maintenance, f"bury_stray_{stream}", look(stream))
        monkeypatch.setattr(maintenance, f"purge_{stream}", purge(stream))
    async with joined_node(wire, node_settings(names), SystemTime(), Sender()) as node:
        await node.until_ready()
        await until(lambda: len(calls) >= 8)
    assert calls[:8] == [
        ("look at deliveries", 1), ("look at events", 2), ("purge deliveries", 0), ("purge events", 2),
        ("look at deliveries", 3), ("look at events", 4), ("purge deliveries", 0), ("purge events", 4),
    ]  # fmt: skip


async def test_messages_purged_by_sequence_are_not_purged_by_subject(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The samples were taken, and the surplus was known, before anything went."""
    asked_to_free = list[float]()

    async def purge_all(*_: Any) -> None:
        await js.purge(names.deliveries, (await js.existing_stream(names.deliveries)).last + 1)

    async def purge_settled(_: JetStream, __: Names, ___: object, bytes_to_free: float) -> None:
        asked_to_free.append(bytes_to_free)

    while not isinstance(await js.publish(names.publish_to(PAUSED), b"x" * 2000), Refused):
        pass
    monkeypatch.setattr(maintenance, "purge_deliveries", purge_all)
    monkeypatch.setattr(maintenance, "purge_settled", purge_settled)
    async with joined_node(wire, node_settings(names), SystemTime(), Sender()) as node:
        await node.until_ready()
        await until(lambda: bool(asked_to_free))
    assert set(asked_to_free) == {0.0}
