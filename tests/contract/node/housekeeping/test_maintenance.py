"""Rounds of maintenance: what they remove, and that a part that fails does not stop the others."""

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors.errors import Unusable
from actors.machine.state import State
from actors.runtime.host import Host
from actors.tenant_settings import TenantSettings
from angarium.node.app import joined_node
from angarium.node.housekeeping import maintenance
from angarium.node.housekeeping.maintenance import Maintenance, RoundPart
from streams.clock import SystemTime
from streams.installation.topology import Names
from streams.journal.snapshots import Snapshot
from streams.journal_feed.redacted_flushes import store_redacted
from streams.nats.answers import Refused, Stored, StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.resending import replay_lock
from streams.resending.replay_lock import ReplayPlan
from tests.contract.node.senders import NobodySends
from tests.contract.support.full_streams import PAUSED, Sender, install_with_little_room
from tests.contract.support.shards import SHARD
from tests.support.installation import install, node_settings
from tests.support.waiting import until, until_true


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


async def test_no_event_is_evicted_while_no_dead_letter_can_be_stored(
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
    """A purge of events keeps what came after the search of its own round."""
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


async def test_unneeded_snapshots_are_forgotten_even_if_another_cannot_be_read(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The snapshot of a receiver that was removed long ago goes, before and after one of another receiver."""
    monkeypatch.setattr("angarium.node.housekeeping.maintenance.ROUND_EVERY_S", 0.01)
    monkeypatch.setattr("angarium.node.housekeeping.maintenance.LEFTOVERS_EVERY_S", 0.01)
    monkeypatch.setattr("angarium.node.shard_snapshots.SNAPSHOT_EVERY_S", 0.02)
    names = await install(js, prefix)
    gone = [names.actor_keys.actor(SHARD, "acme.a"), names.actor_keys.actor(SHARD, "acme.z")]
    strange = names.actor_keys.actor(SHARD, "acme.strange")
    for subject in gone:
        state = State(receiver=subject.removeprefix(names.actor_keys.actor(SHARD, "")), removed_at=0.0)
        await js.publish(subject, msgspec.json.encode(Snapshot(as_of=0, state=state)))
    await js.publish(strange, b"nobody knows")

    async def left() -> list[bool]:
        found = [await js.last_message(names.actors, each) for each in gone]
        return [bool(each and each.data) for each in found]

    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: SHARD in node.owned)

        async def forgotten() -> bool:
            node.owned[SHARD].journal.flush_soon()
            return not any(await left())

        await until_true(forgotten)
    kept = await js.last_message(names.actors, strange)
    assert kept is not None
    assert kept.data == b"nobody knows"
    assert "snapshot.unreadable" in caplog.text


async def test_plans_of_jobs_that_ended_long_ago_go(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.node.housekeeping.maintenance.ROUND_EVERY_S", 0.01)
    monkeypatch.setattr("streams.resending.ended_replays.SHOWN_FOR_S", -1.0)
    names = await install(js, prefix)
    plan = ReplayPlan(v=replay_lock.VERSION, run="r", step=1, at=0.0, held=False)
    subject = names.actor_keys.replay("acme.a")
    await js.publish(subject, msgspec.json.encode(plan))
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()):

        async def gone() -> bool:
            return await js.last_message(names.actors, subject) is None

        await until_true(gone)


async def test_copies_of_erased_flushes_go_with_the_journal(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.node.housekeeping.maintenance.ROUND_EVERY_S", 0.01)
    names = await install(js, prefix)
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await node.until_ready()
        flush = await js.message(names.journal, 2)
        assert flush is not None
        for position in (1, 3):
            await store_redacted(js, names, replace(flush, position=position))
        await js.purge(names.journal, 3)

        async def left() -> bool:
            return list(await js.subjects(names.actors, names.actor_keys.redacted_flushes)) == [
                names.actor_keys.redacted_flush(3)
            ]

        await until_true(left)


async def test_a_defect_in_the_maintenance_ends_one_round_and_not_all(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without further rounds the streams would fill up."""
    rounds: list[StreamInfo] = []

    def is_short_or_broken(info: StreamInfo) -> bool:
        rounds.append(info)
        if len(rounds) == 1:
            raise RuntimeError("nobody foresaw that")
        return False

    monkeypatch.setattr("angarium.node.housekeeping.maintenance.ROUND_EVERY_S", 0.01)
    monkeypatch.setattr("angarium.node.housekeeping.maintenance.is_short", is_short_or_broken)
    async with joined_node(wire, node_settings(await install(js, prefix)), SystemTime(), NobodySends()):
        await until(lambda: len(rounds) > 1)
    assert "maintenance.broken" in caplog.text
