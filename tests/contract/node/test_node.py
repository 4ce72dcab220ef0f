"""A node that may not run a shard: it gives the shard up, says so, and tries again later."""

import asyncio
import gc
import logging
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from msgspec.structs import replace

from actors.errors import AngariumError, NewerVersion, Unavailable
from actors.machine.outcome import Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.access import Access
from angarium.node.app import joined_node
from angarium.node.monitor import unready
from angarium.node.node import Node
from angarium.node.shard import NodeContext, Shard, take_over
from angarium.operations.failures import NotDone
from angarium.operations.installation.fleet import shards_and_refusals
from streams.clock import SystemTime
from streams.fleet.members import Members
from streams.installation.topology import Names
from streams.journal.checkpoint import read_checkpoint
from streams.journal.claim import Claim, NotOwned, release
from streams.journal.envelope import encode_flush
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.nats.answers import Stored
from streams.nats.errors import ApiError, NotOurs, NotPermitted, StreamRecreated
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.observation.installation_status import owners
from tests.contract.node.senders import NobodySends
from tests.contract.support.shards import RECEIVER, SHARD
from tests.support.installation import SHARDS, install, node_settings, publish
from tests.support.installation import shard as shard_of
from tests.support.waiting import until, until_true

FLOOR = 2
LOOKS = 20


@pytest.fixture
async def names(js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Names:
    """An installation where one shard has released more deliveries than there ever were."""
    monkeypatch.setattr("angarium.node.node.RECONCILE_EVERY_S", 0.01)
    names = await install(js, prefix)
    data = encode_flush(
        node="x", epoch=0, flush=1, floor=FLOOR, routing=NOTHING_ROUTED, at=0.0, unclean=None, facts=[]
    )
    assert isinstance(await js.publish(names.journal_of(SHARD), data), Stored)
    return names


async def test_a_refused_shard_is_released_and_not_tried_again_at_once(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """Otherwise its owner would seem to run it, and each new try adds one more claim to the journal."""

    async def released() -> bool:
        return (await owners(js, names, SHARDS))[SHARD] is None

    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS - 1 and SHARD in node.refused)
        await until_true(released)
        seen = await shards_and_refusals(Access(js, node_settings(names)))
        assert not isinstance(seen, NotDone)
        assert (seen[SHARD].node, seen[SHARD].refused) == (None, node.refused[SHARD])
        looks = count_looks(node)
        await until(lambda: len(looks) > LOOKS)
        subject = names.journal_of(SHARD)
        assert await js.subjects(names.journal, subject) == {subject: 2}


async def test_a_bucket_that_is_recreated_under_a_node_stops_its_shards(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configurations put into the new bucket are noticed, although revisions start again."""
    monkeypatch.setattr("angarium.node.housekeeping.maintenance.ROUND_EVERY_S", 0.01)
    monkeypatch.setattr("angarium.node.shard_snapshots.SNAPSHOT_EVERY_S", 0.02)
    for _ in range(3):
        await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example"}')
    others = [shard for shard in range(SHARDS) if shard != SHARD]

    async def snapshotted() -> bool:
        return all([await read_checkpoint(js, names, shard) is not None for shard in others])

    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until_true(snapshotted)
        info = await js.stream_info(names.receivers)
        assert info is not None
        await js.request(f"$JS.API.STREAM.DELETE.{names.receivers}", b"")
        await js.stream_create(info.config)
        await js.publish(names.receiver(RECEIVER), b'{"url": "https://b.example"}')
        await until(lambda: len(node.refused) == SHARDS)
        assert all(f"{names.receivers} was recreated" in node.refused[shard] for shard in others)

        def url() -> str:
            policy = node.context.configurations.policy(RECEIVER)
            return policy.url if policy else ""

        await until(lambda: url() == "https://b.example")


async def test_misaddressed_events_are_logged_in_few_lines_that_count_all(
    wire: Wire, js: JetStream, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise any producer could write one line per event into it."""
    names = await install(js, prefix)
    for number in range(40):
        await publish(js, names, f"acme.b$d{number}")

    def told() -> list[int]:
        return [
            each.__dict__.get("count", 1) for each in caplog.records if each.message == "event.misaddressed"
        ]

    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()):
        await until(lambda: sum(told()) == 40)
    assert len(told()) < 20


def count_looks(node: Node) -> list[int]:
    """Grows with each time that the node sees what it should own."""
    looks: list[int] = []
    wanted = node.context.members.wanted_shards

    def counted(shards: int) -> list[int]:
        looks.append(shards)
        return wanted(shards)

    node.context.members.wanted_shards = counted  # type: ignore[method-assign]
    return looks


async def test_a_refused_shard_is_taken_once_what_was_wrong_is_right(
    wire: Wire, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("angarium.node.node.RETRY_REFUSED_AFTER_S", 0.02)
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: SHARD in node.refused)
        for _ in range(FLOOR):
            await publish(js, names, RECEIVER)
        await until(lambda: SHARD in node.owned)
        assert not node.refused


@pytest.mark.parametrize(
    "passing", [Unavailable("no leader"), ApiError(10008, "unavailable"), NotPermitted("not yet")]
)
async def test_a_temporary_failure_refuses_no_shard(
    wire: Wire,
    js: JetStream,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    passing: AngariumError,
) -> None:
    """The node tries again at once; a refused shard would rest for longer than this test."""
    monkeypatch.setattr("angarium.node.node.RECONCILE_EVERY_S", 0.01)
    failures = [passing] * SHARDS

    async def failing_at_first(number: int, context: NodeContext) -> Shard | NotOwned:
        if failures:
            raise failures.pop()
        return await take_over(number, context)

    monkeypatch.setattr("angarium.node.node.take_over", failing_at_first)
    names = await install(js, prefix)
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: bool(node.refused) or len(node.owned) == SHARDS)
        assert not node.refused
    (failed,) = [each for each in caplog.records if each.message == "shard.claim_failed"]
    assert failed.__dict__["count"] == SHARDS


@pytest.mark.parametrize(
    "unusable", [NewerVersion("upgrade"), NotOurs("whose?"), StreamRecreated("recreated")]
)
async def test_unusable_data_refuses_the_shard(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch, unusable: AngariumError
) -> None:
    monkeypatch.setattr("angarium.node.node.RECONCILE_EVERY_S", 0.01)
    monkeypatch.setattr("angarium.node.node.take_over", AsyncMock(side_effect=unusable))
    names = await install(js, prefix)
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.refused) == SHARDS)
        assert set(node.refused.values()) == {str(unusable)}


@pytest.mark.parametrize(
    ("failure", "refused"),
    [
        (Unavailable("no leader"), False),
        (ApiError(10059, "stream not found"), False),
        (NotOurs("whose is it?"), True),
    ],
)
async def test_snapshots_refuse_the_shard_only_where_they_can_never_be_written(
    wire: Wire,
    js: JetStream,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: AngariumError,
    refused: bool,
) -> None:
    monkeypatch.setattr("angarium.node.shard_snapshots.SNAPSHOT_EVERY_S", 0.01)
    monkeypatch.setattr("angarium.node.node.RECONCILE_EVERY_S", 0.01)
    names = await install(js, prefix)
    tries = AsyncMock(side_effect=failure)
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: SHARD in node.owned)
        with monkeypatch.context() as broken:
            broken.setattr("streams.journal.snapshots.Snapshots.write", tries)
            await until(lambda: SHARD in node.refused or tries.await_count > 2 * SHARDS)
            assert (SHARD in node.refused) is refused
    assert ("snapshot.delayed" in caplog.messages) is not refused


async def test_work_that_is_given_up_before_it_began_leaves_nothing_behind(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Python complains of a coroutine that was never awaited."""
    node = Node(Mock(drain_s=0.0), SHARDS)
    node.begin(node.claim, SHARD)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    del task
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()
    assert not recwarn.list


def wants(node: Node, numbers: list[int]) -> None:
    """From now on the node should own these."""

    def wanted_shards(shards: int) -> list[int]:
        return numbers

    node.context.members.wanted_shards = wanted_shards  # type: ignore[method-assign]


async def test_a_shard_that_should_be_another_nodes_is_no_longer_refused_here(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """The other node may run the shard: this node is ready, and no longer counts the shard as refused."""
    others = [shard for shard in range(SHARDS) if shard != SHARD]
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS - 1 and SHARD in node.refused)
        assert unready(node).startswith(f"shard {SHARD} is refused")
        wants(node, others)
        await until(lambda: not node.refused)
        assert unready(node) == ""


async def stop_and_let(go_on: asyncio.Event, node: Node) -> None:
    """Stops the node; the awaited thing may go on once it stops."""
    stopping = asyncio.ensure_future(node.stop())
    await until(lambda: node.is_stopping)
    go_on.set()
    await stopping


async def test_a_shard_that_is_being_claimed_while_a_node_stops_is_handed_over_too(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next owner would wait for the lease to end, and take this node for crashed."""
    names = await install(js, prefix)
    claimed, may_go_on = asyncio.Event(), asyncio.Event()

    async def take_over_slowly(number: int, context: NodeContext) -> Shard | NotOwned:
        taken = await take_over(number, context)
        claimed.set()
        await may_go_on.wait()
        return taken

    monkeypatch.setattr("angarium.node.node.take_over", take_over_slowly)
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await claimed.wait()
        await stop_and_let(may_go_on, node)
        assert await owners(js, names, SHARDS) == [None] * SHARDS


async def test_a_node_that_stops_waits_for_what_it_is_handing_over_already(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handover may take longer than the wait for claims."""
    names = await install(js, prefix)
    releasing, may_go_on = asyncio.Event(), asyncio.Event()

    async def release_slowly(js: JetStream, names: Names, claim: Claim, node: str) -> bool:
        releasing.set()
        await may_go_on.wait()
        return await release(js, names, claim, node)

    monkeypatch.setattr("angarium.node.node.CLAIMS_TIMEOUT_S", 0.0)
    monkeypatch.setattr("angarium.node.node.RECONCILE_EVERY_S", 0.01)
    monkeypatch.setattr("angarium.node.shard.release", release_slowly)
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        wants(node, [])
        await releasing.wait()
        await stop_and_let(may_go_on, node)
        assert await owners(js, names, SHARDS) == [None] * SHARDS


async def test_a_shard_whose_attempts_outlast_drain_s_is_not_said_to_be_handed_over(
    wire: Wire, js: JetStream, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Attempts in flight may be repeated, and the log says why."""
    sent = asyncio.Event()

    class Hangs:
        async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
            sent.set()
            never: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            return await never

    names = await install(js, prefix)
    await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example"}')
    await publish(js, names, RECEIVER)
    impatient = replace(node_settings(names), drain_s=0.01)
    async with joined_node(wire, impatient, SystemTime(), Hangs()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        await sent.wait()
        shards = list(node.owned.values())
        await node.stop()
        assert [shard.number for shard in shards if not await shard.hand_over(0.0)] == [shard_of(RECEIVER)]
    ended = {record.message: getattr(record, "why", "") for record in caplog.records}
    assert ended["shard.ended"] == "1 in flight after drain_s (0.01 s)"


async def test_a_stranger_in_the_place_of_the_owner_stops_the_shard_with_the_next_snapshot(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the shard could write no more snapshots, and would not say so."""
    monkeypatch.setattr("angarium.node.shard_snapshots.SNAPSHOT_EVERY_S", 0.02)
    monkeypatch.setattr("angarium.node.node.RECONCILE_EVERY_S", 0.01)
    names = await install(js, prefix)
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: SHARD in node.owned)
        await js.publish(names.actor_keys.owner(SHARD), b"nobody")
        node.owned[SHARD].journal.flush_soon()
        await until(lambda: "was not written by Angarium" in node.refused.get(SHARD, ""))
        assert SHARD not in node.owned


async def test_a_defect_while_owned_and_wanted_are_compared_ends_nothing(
    wire: Wire, js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise no shard would ever be claimed again, while the node lives on."""
    broken = Mock(side_effect=[RuntimeError("nobody foresaw that"), *[[SHARD]] * 1000])
    monkeypatch.setattr("angarium.node.node.RECONCILE_EVERY_S", 0.01)
    monkeypatch.setattr(Members, "wanted_shards", broken)
    async with joined_node(
        wire, node_settings(await install(js, prefix)), SystemTime(), NobodySends()
    ) as node:
        await until(lambda: SHARD in node.owned)
    assert "node.broken" in caplog.text


async def test_shards_are_logged_once_all_are_there_and_ended_ones_in_one_line(
    wire: Wire, js: JetStream, prefix: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended node loses all its shards at once, for one reason."""
    monkeypatch.setattr("angarium.node.node.RECONCILE_EVERY_S", 0.01)
    monkeypatch.setattr("angarium.node.node.CLAIMS_AT_ONCE", 1)
    caplog.set_level(logging.INFO)
    names = await install(js, prefix)

    def lines(event: str) -> list[dict[str, Any]]:
        return [record.__dict__ for record in caplog.records if record.message == event]

    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await node.until_ready()
        assert [each["owned"] for each in lines("node.shards")] == [SHARDS]
        before = list(node.owned.values())
        for running in before:
            running.ownership_lost("another node owns it")
        await until(lambda: not set(before) & set(node.owned.values()))
        node.context.js.gathered_log.flush()
        (ended,) = lines("shard.ended")
        assert (ended["count"], ended["why"]) == (SHARDS, "fenced: another node owns it")
