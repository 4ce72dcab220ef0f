"""Alerts in a fleet with a node of an older version, which could not read the facts about them."""

import msgspec
import pytest

from actors.machine.outcome import Answered, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.node.app import joined_node
from streams.clock import SystemTime
from streams.fleet.members import Member
from streams.fleet.placement import PLACEMENT_VERSION
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.nats.wire_names import KV_DELETED
from tests.support.installation import SHARDS, node_settings, publish, shard
from tests.support.waiting import until, until_true

RECEIVER = "acme.gone"
OLDER = Member(
    node="older", started_at=0.0, version="1", heartbeat=1, ttl_s=600.0, placement=PLACEMENT_VERSION,
    draining=True,
)  # fmt: skip


class Gone:
    """Answers each attempt with 410."""

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        return Answered(status=410, latency_ms=1.0)


async def test_a_shard_records_no_alert_while_a_node_lives_that_knows_none(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older node might take over, and could not read the journal."""
    monkeypatch.setattr("actors.runtime.alerts.watch.JUDGE_EVERY_S", 0.02)
    await js.publish(names.node(OLDER.node), msgspec.json.encode(OLDER))

    async def is_stored() -> bool:
        return (await js.existing_stream(names.events)).messages == 1

    async with joined_node(wire, node_settings(names), SystemTime(), Gone()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        members, asked = node.context.members, list[bool]()
        all_know_facts = members.all_know_facts

        def ask(known: int) -> bool:
            asked.append(all_know_facts(known))
            return asked[-1]

        monkeypatch.setattr(members, "all_know_facts", ask)
        await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example"}')
        await publish(js, names, RECEIVER)
        actors = node.owned[shard(RECEIVER)].host.actors
        await until(lambda: RECEIVER in actors and bool(actors[RECEIVER].state.disabled))
        asked.clear()
        await until(lambda: len(asked) > 2 * SHARDS)
        assert not any(asked)
        assert not actors[RECEIVER].state.alerts
        await js.publish(names.node(OLDER.node), b"", KV_DELETED)
        await until_true(is_stored)
