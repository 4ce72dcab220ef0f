"""Receivers whose journal is newer than their snapshots: what is shown is as new as the journal."""

from typing import Any

import msgspec
import pytest

from actors.machine import facts as f
from actors.machine.numbering import Frontier, Numbered
from actors.machine.pace.pace import HeaderLimit, Pace
from actors.machine.state import State
from angarium.access import Access
from angarium.cli.receivers.table import TOP_COLUMNS, cells
from angarium.operations.configurations.put import NewConfiguration, put_configuration
from angarium.operations.installation.doctor.receivers import check_receivers
from angarium.operations.receiver_list import listing
from angarium.operations.receiver_list.listing import Overview, overview
from streams.clock import server_time
from streams.journal.checkpoint import Checkpoint, encode_checkpoint
from streams.journal.claim import Owner
from tests.contract.observation.snapshots import failed, put, waits
from tests.contract.support.owners import own_all_shards
from tests.support.installation import SHARDS, installation, shard
from tests.support.ledgers import RECEIVER, JournalWriter

EVENTS = 10


async def put_events(access: Access, order: str = "strict") -> list[int]:
    """A receiver whose shard a live node owns, and events for it; returns their positions."""
    members = {"url": "https://example.com/", "order": order}
    await put_configuration(access, RECEIVER, NewConfiguration(members=members))
    js, names = access.js, access.names
    await own_all_shards(js, names)
    await js.publish(names.actor_keys.checkpoint(shard(RECEIVER)), encode_checkpoint(Checkpoint()))
    positions = []
    for number in range(EVENTS):
        answer: Any = await js.publish(names.publish_to(RECEIVER), b"%d" % number)
        positions.append(answer.position)
    return positions


def settled(position: int) -> f.Delivered:
    event = Numbered(sequence=position, position=position, id=f"e{position}", stored_at=1.0)
    return f.Delivered(receiver=RECEIVER, events=(event,), at=1.0, attempt=1, status=200, latency_ms=1.0)


async def look(access: Access) -> Overview:
    found = await overview(access, None)
    assert isinstance(found, Overview)
    return found


@pytest.mark.parametrize(("order", "done"), [("strict", (0, 1, 2)), ("relaxed", (1, 3, 9))])
async def test_waiting_events_are_counted_where_the_journal_is_ahead(
    access: Access, order: str, done: tuple[int, ...]
) -> None:
    positions = await put_events(access, order)
    (before,) = (await look(access)).rows
    assert (before.phase, before.waiting) == ("idle", 0)
    await JournalWriter(access.js, access.names).flush(*(settled(positions[each]) for each in done))
    (row,) = (await look(access)).rows
    assert (row.phase, row.waiting) == ("active", EVENTS - len(done))
    assert row.oldest_at is not None


async def test_too_many_to_count_are_not_known(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "OVERTAKEN_COUNTED_MAX", 0)
    positions = await put_events(access)
    await JournalWriter(access.js, access.names).flush(settled(positions[0]))
    found = await look(access)
    (row,) = found.rows
    assert (row.phase, row.waiting, row.limited_by) == ("idle", None, None)
    assert cells(row, TOP_COLUMNS, 0.0)[TOP_COLUMNS.index("waiting")] == "?"
    assert found.age_s >= 0.0


async def test_a_receiver_whose_events_are_all_settled_has_none_waiting(access: Access) -> None:
    positions = await put_events(access)
    journal = JournalWriter(access.js, access.names)
    await journal.flush(*(settled(each) for each in positions))
    (row,) = (await look(access)).rows
    assert (row.phase, row.waiting, row.oldest_at) == ("idle", 0, None)


# ---- a receiver that is held back


async def test_a_receiver_under_a_learnt_pace_is_not_listed_as_held_up_by_the_nodes(access: Access) -> None:
    positions = await put_events(access)
    now = await server_time(access.js, access.names.deliveries)
    learnt = Pace(told=HeaderLimit(per_second=0.01, until=now + 600))
    await put(access.js, access.names, waits(RECEIVER, now - 60, pace=learnt, parked=False))
    checkpoint = encode_checkpoint(Checkpoint(floor=positions[-1]))
    await access.js.publish(access.names.actor_keys.checkpoint(shard(RECEIVER)), checkpoint)
    (row,) = (await look(access)).rows
    assert (row.phase, row.limited_by) == ("active", "pace")


async def test_a_receiver_that_was_resumed_since_its_snapshot_is_not_held_up_by_failures(
    access: Access,
) -> None:
    """The snapshot, and the failures of the last seconds, are older than the resume."""
    await put_events(access)
    now = await server_time(access.js, access.names.deliveries)
    await put(access.js, access.names, waits(RECEIVER, now - 60, backoff_until=now + 600))
    journal = JournalWriter(access.js, access.names)
    await journal.flush(failed(RECEIVER, now))
    (row,) = (await look(access)).rows
    assert (row.phase, row.limited_by) == ("backing_off", "failure")
    await journal.flush(f.Resumed(receiver=RECEIVER, at=now))
    (row,) = (await look(access)).rows
    assert (row.phase, row.limited_by) == ("active", "unknown")
    found = await overview(access, None, ["backing_off"])
    assert isinstance(found, Overview)
    assert found.rows == []


@pytest.fixture
async def held(access: Access, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A parked and paused receiver, and one event more than its snapshot knows, minutes later."""
    positions = await put_events(access)
    js, names = access.js, access.names
    state = State(receiver=RECEIVER, opened=True, parked=True, frontier=Frontier(position=positions[0] - 1))
    await put(js, names, state, b'{"url":"https://example.com/","paused":true}')
    checkpoint = encode_checkpoint(Checkpoint(floor=positions[-2]))
    await js.publish(names.actor_keys.checkpoint(shard(RECEIVER)), checkpoint)

    async def later(*_: object) -> float:
        return await server_time(js, names.deliveries) + 240

    monkeypatch.setattr("streams.observation.receiver_snapshots.server_time", later)
    return positions


async def test_an_event_for_a_paused_receiver_does_not_make_the_list_old(
    access: Access, held: list[int]
) -> None:
    found = await look(access)
    assert (found.notes, found.age_s) == ([], 0.0)
    (row,) = found.rows
    assert (row.phase, row.waiting) == ("paused", len(held))
    findings = await check_receivers(access.js, installation(access.names.prefix))
    assert findings[0].text.endswith("(as of 0s ago)")


async def test_the_list_says_that_no_node_runs_the_shards(access: Access, held: list[int]) -> None:
    js, names = access.js, access.names
    for number in range(SHARDS):
        released = Owner(node="n1", at=0.0, released=1)
        await js.publish(names.actor_keys.owner(number), msgspec.json.encode(released))
    found = await look(access)
    assert found.notes == [f"no live node owns {SHARDS} of {SHARDS} shards"]
    await js.publish(names.node("n1"), b"", {"KV-Operation": "DEL"})
    assert (await look(access)).notes == found.notes
    (row,) = found.rows
    assert (row.phase, row.waiting) == ("paused", len(held))


async def test_the_list_says_how_old_the_phases_are_that_the_journal_has_overtaken(
    access: Access, held: list[int]
) -> None:
    await JournalWriter(access.js, access.names).flush(settled(held[0]))
    assert (await look(access)).notes == [f"the phases in 1 of {SHARDS} shards are up to 4m old"]
