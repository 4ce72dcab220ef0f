"""The repair of a shard: when it is allowed, what it finds, and that no node runs the shard before."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from actors.errors import NewerVersion
from actors.ids import UNKNOWN_RECEIVERS
from actors.machine.facts import Delivered, EventRefused, Fact, Parked, Repaired
from actors.machine.numbering import Numbered
from streams.installation.topology import Names
from streams.journal import claim as claiming
from streams.journal import envelope, journal
from streams.journal import recovery as recovering
from streams.journal.checkpoint import Checkpoint, read_checkpoint
from streams.journal.claim import NotOwned, claim, release
from streams.journal.envelope import decode_flush
from streams.journal.journal import Journal
from streams.journal.leadership import info_since
from streams.journal.refusal import RecordedLoss, read_recorded_loss, refuse
from streams.journal.snapshots import Snapshots
from streams.journal_feed.redacted_flushes import store_redacted
from streams.lost_tails.comparison import Loss
from streams.lost_tails.marks import UNKNOWN_MARKS as UNMARKED
from streams.lost_tails.marks import Mark, Marks, SourceOffset
from streams.nats.answers import StreamInfo
from streams.nats.errors import RepairError, StreamRecreated
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.repair import acceptance
from streams.repair.acceptance import accept_loss, source_offsets_after
from streams.repair.damage import Damage, LostTail, find_damage
from streams.repair.preconditions import dead_holders, takes_over_from
from streams.repair.stream_history import StreamHistory, last_unchanged_mark, read_history
from tests.contract.journal.recording import Recording, delivered, recreate
from tests.contract.support.shards import (
    RECEIVER,
    SHARD,
    Clocks,
    Listening,
    any_node,
    last_flush,
    lose_events,
    mark_at,
    own,
)
from tests.support.installation import publish
from tests.support.waiting import until


async def repaired(js: JetStream, names: Names) -> tuple[Damage, int]:
    return await accepted(js, names, await find_damage(js, names, SHARD))


async def accepted(js: JetStream, names: Names, agreed: Damage) -> tuple[Damage, int]:
    dead = frozenset({"b"})
    return await accept_loss(
        js, names, SHARD, "repair", Clocks(), may_claim=takes_over_from(dead), agreed=agreed
    )


async def grown_again(js: JetStream, names: Names, *more: Fact) -> None:
    """A shard has delivered ten events and was released; the stream is another one, and as long again."""
    for _ in range(10):
        await publish(js, names, RECEIVER)
    claimed = await own(js, names, "a")
    shard = Recording(js, names, claimed)
    await shard.record(*(delivered(position, position) for position in range(1, 11)), *more)
    await shard.snapshot()
    await shard.stop()
    await release(js, names, claimed, "a")
    await recreate(js, names, names.deliveries)
    for _ in range(12):
        await publish(js, names, RECEIVER)


async def test_brings_actors_back_and_ends_the_refusal(js: JetStream, names: Names) -> None:
    await grown_again(js, names)
    with pytest.raises(StreamRecreated, match="the message read at 10 was stored at"):
        await own(js, names, "b")
    damage = await find_damage(js, names, SHARD)
    [gap] = damage.gaps
    assert (gap.stream, gap.kept.position, gap.known.position) == (names.deliveries, 0, 10)
    found, count = await repaired(js, names)
    assert (found.gaps, count) == (damage.gaps, 1)
    assert await read_recorded_loss(js, names, SHARD) is None
    flush = await last_flush(js, names)
    [fact] = flush.facts
    assert isinstance(fact, Repaired)
    assert (fact.receiver, fact.position, fact.next_sequence) == (RECEIVER, 0, 523)
    assert (flush.floor, flush.marks.deliveries.position) == (0, 0)

    claimed = await own(js, names, "b")
    assert claimed.clean
    recovery = await recovering.recover(js, names, claimed, "b")
    assert not isinstance(recovery, NotOwned)
    state = await Snapshots(js, names, claimed).load(RECEIVER)
    assert state is not None
    assert (state.frontier.position, state.frontier.sequence) == (0, 522)


async def test_a_repair_brings_back_the_record_of_all_unknown_names(js: JetStream, names: Names) -> None:
    await grown_again(
        js, names, EventRefused(receiver=UNKNOWN_RECEIVERS, at=1.0, position=10, reason="unknown_receiver")
    )
    _, count = await repaired(js, names)
    assert count == 2
    state = await Snapshots(js, names, await own(js, names, "b")).load(UNKNOWN_RECEIVERS)
    assert state is not None
    assert (state.frontier.position, state.burials) == (0, ())


async def test_a_repair_accepts_recreated_streams(js: JetStream, names: Names) -> None:
    claimed = await own(js, names, "a")
    created = dict.fromkeys(names.streams, "2026-01-01T00:00:00Z")
    await Snapshots(js, names, claimed).write(
        [],
        [],
        claimed.journal_position,
        Checkpoint(journal_position=claimed.journal_position, created=created),
    )
    await release(js, names, claimed, "a")
    assert (await find_damage(js, names, SHARD)).recreated == names.streams
    await repaired(js, names)
    assert (await find_damage(js, names, SHARD)).is_empty
    checkpoint = await read_checkpoint(js, names, SHARD)
    assert checkpoint is not None
    assert set(checkpoint.created) == set(names.streams)


async def test_a_repair_reads_recreated_streams_from_their_beginning(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older Angarium recorded no marks, so only the stream's creation time shows it."""
    created = {name: (await stream_info(js, name)).created for name in names.streams}
    for _ in range(10):
        await publish(js, names, RECEIVER)
    with monkeypatch.context() as older:
        for module in (journal, claiming):
            unmarked = partial(_unmarked, module.encode_flush)
            older.setattr(module, "encode_flush", unmarked)
        claimed = await own(js, names, "a")
        shard = Recording(js, names, claimed)
        await shard.record(*(delivered(position, position) for position in range(1, 11)))
        sequence = shard.journal.position
        listed = shard.listed.as_of(sequence)
        await shard.snapshot(
            Checkpoint(journal_position=sequence, floor=10, created=created, parked_parts=listed)
        )
        await shard.stop()
        await release(js, names, claimed, "a")
    await recreate(js, names, names.deliveries)
    await recreate(js, names, names.events)
    for _ in range(12):
        await publish(js, names, RECEIVER)
    with pytest.raises(StreamRecreated, match="was recreated"):
        await own(js, names, "b")
    damage = await find_damage(js, names, SHARD)
    assert [(gap.stream, gap.kept.position) for gap in damage.gaps] == [
        (names.deliveries, 0), (names.events, 0),
    ]  # fmt: skip
    await repaired(js, names)
    claimed = await own(js, names, "b")
    assert not isinstance(await recovering.recover(js, names, claimed, "b"), NotOwned)
    state = await Snapshots(js, names, claimed).load(RECEIVER)
    assert state is not None
    assert (claimed.floor, state.frontier.position) == (0, 0)
    assert claimed.marks.source(1) > 1_000_000_000


def _unmarked(encode: Callable[..., bytes], **flush: Any) -> bytes:
    return encode(**{**flush, "marks": UNMARKED})


async def test_a_repair_drops_copies_of_erased_flushes(js: JetStream, names: Names) -> None:
    """Their positions may be those of other messages, which were purged unread."""
    await grown_again(js, names)
    flush = await js.last_message(names.journal, names.journal_of(SHARD))
    assert flush is not None
    await store_redacted(js, names, flush)
    assert await js.subjects(names.actors, names.actor_keys.redacted_flushes)
    await repaired(js, names)
    assert not await js.subjects(names.actors, names.actor_keys.redacted_flushes)


async def test_accepts_no_more_than_was_agreed_to(js: JetStream, names: Names) -> None:
    """The damage grew while the operator was asked: another stream, or more of this one."""
    await grown_again(js, names)
    damage = await find_damage(js, names, SHARD)
    [gap] = damage.gaps
    before = await js.last_message(names.journal, names.journal_of(SHARD))
    further = replace(gap, known=Mark(position=9))
    for agreed in (replace(damage, gaps=()), replace(damage, gaps=(further,))):
        with pytest.raises(RepairError, match="more was lost than you accepted"):
            await accepted(js, names, agreed)
    assert await js.last_message(names.journal, names.journal_of(SHARD)) == before
    found, _ = await accepted(js, names, damage)
    assert found.gaps == damage.gaps


async def test_a_repair_of_an_owned_shard_is_refused(js: JetStream, names: Names) -> None:
    await own(js, names, "a")
    with pytest.raises(RepairError, match="a holds it"):
        await repaired(js, names)


async def test_an_interrupted_repair_keeps_all_nodes_out(js: JetStream, names: Names) -> None:
    """The repair has claimed a shard that nothing refused before, and dies right after that."""
    await js.publish(names.journal_of(SHARD), b"no flush", {})
    with pytest.raises(Exception, match="not written by Angarium"):
        await repaired(js, names)
    info = await js.stream_info(names.journal)
    assert info is not None
    assert info.messages == 1


async def test_events_go_on_under_sources_above_all_others(js: JetStream, names: Names) -> None:
    await lose_events(js, names)
    damage, count = await repaired(js, names)
    assert ([gap.stream for gap in damage.gaps], count) == ([names.events], 0)
    offsets = (await own(js, names, "b")).marks.source_offsets
    assert offsets == (SourceOffset(above=0, offset=1_000_000_009),)


async def test_an_older_node_does_not_drop_what_was_accepted(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older node knows no marks, and would leave them out of its claim."""
    claimed = await own(js, names, "a")
    offsets = (SourceOffset(above=4, offset=1_000_000_009),)
    listening = Listening()
    listening.known = Marks(source_offsets=offsets)
    journal = Journal(js, names, claimed, "a", listening, time=Clocks(), retention_s=3600.0)
    journal.start()
    journal.flush_soon()
    await until(lambda: bool(listening.positions))
    await journal.stop()
    with monkeypatch.context() as older:
        older.setattr(envelope, "VERSION", 1)
        older.setattr(claiming, "encode_flush", partial(_unmarked, envelope.encode_flush))
        with pytest.raises(NewerVersion, match="upgrade this node"):
            await own(js, names, "old")
    assert (await own(js, names, "b")).marks.source_offsets == offsets


def test_sources_rise_across_every_loss() -> None:
    marks = Marks(source_offsets=(SourceOffset(above=10, offset=100), SourceOffset(above=20, offset=1000)))
    assert [marks.source(position) for position in (1, 10, 11, 20, 21)] == [1, 10, 111, 120, 1021]


def test_sources_rise_above_those_of_an_earlier_loss_that_lay_beyond() -> None:
    marks = Marks(source_offsets=(SourceOffset(above=10, offset=5_000_000_000),))
    gap = LostTail(stream="events", kept=Mark(position=4), known=Mark(position=9))
    assert source_offsets_after(marks, gap) == (SourceOffset(above=4, offset=6_000_000_009),)


async def test_a_repair_writes_a_checkpoint_with_parked_receivers_and_needed_position(
    js: JetStream, names: Names
) -> None:
    """The journal up to the repair is not read again: the checkpoint has to say it."""
    for _ in range(10):
        await publish(js, names, RECEIVER)
    claimed = await own(js, names, "a")
    shard = Recording(js, names, claimed)
    await shard.record(*(delivered(position, position) for position in range(1, 11)))
    sequence = shard.journal.position
    listed = shard.listed.as_of(sequence)
    await shard.snapshot(Checkpoint(journal_position=sequence, floor=10, needed=11, parked_parts=listed))
    await shard.record(Parked(receiver="acme.other", at=1.0, waiting_since=1.0))
    await shard.stop()
    await release(js, names, claimed, "a")
    await recreate(js, names, names.deliveries)
    await publish(js, names, RECEIVER)
    await repaired(js, names)
    checkpoint = await read_checkpoint(js, names, SHARD)
    assert checkpoint is not None
    assert checkpoint.needed == 1
    recovery = await recovering.recover(js, names, await own(js, names, "b"), "b")
    assert not isinstance(recovery, NotOwned)
    assert "acme.other" in recovery.parked


class TestLastSame:
    async def test_the_last_unchanged_message_is_found_among_all_marks(
        self, js: JetStream, names: Names
    ) -> None:
        for _ in range(9):
            await publish(js, names, RECEIVER)
        marks = []
        for position in (2, 4, 5, 7):
            message = await js.message(names.deliveries, position)
            assert message is not None
            marks.append(Mark(position=position, stored_at=message.stored_at + (position > 5)))
        lost = Mark(position=9)
        for known, expected in ((marks, 5), (marks[:1], 2), (marks[3:], 0), ([], 0)):
            same, differs = await last_unchanged_mark(js, names.deliveries, known, lost)
            assert (same.position, differs) == (expected, marks[3] in known)
        await js.purge(names.deliveries, 7)
        assert await last_unchanged_mark(js, names.deliveries, marks, lost) == (Mark(position=6), True)

    async def test_a_deleted_message_is_not_the_last_unchanged_one(self, js: JetStream, names: Names) -> None:
        """A deleted message leaves an empty position in either stream."""
        for _ in range(9):
            await publish(js, names, RECEIVER)
        marks, lost = [], Mark(position=9)
        for position in range(1, 9):
            mark = await mark_at(js, names, position)
            marks.append(replace(mark, stored_at=mark.stored_at - (position > 3)))
        for position in (2, 4, 5, 6):
            await js.delete(names.deliveries, position)
        assert await last_unchanged_mark(js, names.deliveries, marks, lost) == (marks[2], True)
        await js.delete(names.deliveries, 3)
        assert await last_unchanged_mark(js, names.deliveries, marks, lost) == (marks[0], True)
        assert await last_unchanged_mark(js, names.deliveries, marks[:6], lost) == (marks[0], False)

    async def test_a_message_of_the_new_tail_is_not_the_last_unchanged_one(
        self, js: JetStream, names: Names
    ) -> None:
        """A node had read and settled some of it before it knew that the old one was lost."""
        for _ in range(9):
            await publish(js, names, RECEIVER)
        now = [await mark_at(js, names, position) for position in range(1, 10)]
        before = [each if each.position <= 3 else replace(each, stored_at=now[2].stored_at) for each in now]
        lost = before[6]
        for late in (now[3:5], now[4:6], now[5:], now[8:]):
            known = [*before[:7], *late]
            assert await last_unchanged_mark(js, names.deliveries, known, lost) == (now[2], True)

    async def test_the_last_unchanged_message_is_not_looked_for_beyond_an_accepted_loss(
        self, js: JetStream, names: Names
    ) -> None:
        """Positions were used twice: the first message at one proves nothing about the second."""
        for _ in range(12):
            await publish(js, names, RECEIVER)
        times = {}
        for position in range(1, 13):
            message = await js.message(names.deliveries, position)
            assert message is not None
            times[position] = message.stored_at
        history = StreamHistory()
        for position in range(1, 10):
            again = 7.0 if position > 2 else times[position]
            history.add(Marks(deliveries=Mark(position=position, stored_at=again)))
        for position in (2, 10, 11, 12):
            now = 8.0 if position > 11 else times[position]
            history.add(Marks(deliveries=Mark(position=position, stored_at=now)))
        same, _ = await last_unchanged_mark(js, names.deliveries, history.deliveries, Mark(position=12))
        assert same.position == 11

    async def test_the_last_unchanged_message_is_looked_for_in_the_whole_journal(
        self, js: JetStream, names: Names
    ) -> None:
        shard = Recording(js, names, await own(js, names, "a"))
        await shard.record(delivered(1, 1), delivered(2, 2))
        await shard.stop()
        history = await read_history(js, names, SHARD)
        assert {each.position for each in history.deliveries} == {0, 1, 2}


async def test_a_holder_without_a_sign_of_life_is_dead(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.repair.preconditions.UNKNOWN_TTL_S", 0.0)
    assert await dead_holders(js, names, [SHARD]) == frozenset()
    await own(js, names, "a")
    assert await dead_holders(js, names, [SHARD]) == {"a"}


async def test_the_end_that_is_left_is_proven_even_where_the_claim_is_clean(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deposed leader reports an end that is too low; the last unclean claim is lowered to it."""
    await own(js, names, "a")
    await release(js, names, await own(js, names, "b"), "b")
    asked: list[str] = []

    async def noted(js: JetStream, stream: str, since: float) -> StreamInfo:
        asked.append(stream)
        return await info_since(js, stream, since)

    monkeypatch.setattr("streams.repair.acceptance.info_since", noted)
    await repaired(js, names)
    assert asked == [names.deliveries]


async def test_the_last_unclean_claim_stays_as_recorded_until_the_end(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, it has accepted nothing, and the right stream may be brought back."""
    for _ in range(10):
        await publish(js, names, RECEIVER)
    await own(js, names, "a")
    claimed = await own(js, names, "b")
    shard = Recording(js, names, claimed)
    await shard.record(delivered(1, 1), delivered(2, 1, "acme.other"))
    await shard.stop()
    await release(js, names, claimed, "b")
    before = await last_flush(js, names)
    assert before.unclean is not None
    await recreate(js, names, names.deliveries)
    await publish(js, names, RECEIVER)
    monkeypatch.setattr(acceptance, "FLUSH_FACTS_MAX", 1)
    await repaired(js, names)
    page = await js.read(names.journal, names.journal_of(SHARD), 1)
    *_, claim_, first, second = [decode_flush(each.data, "the journal") for each in page.messages]
    assert [each.unclean for each in (claim_, first)] == [before.unclean, before.unclean]
    assert [each.marks for each in (claim_, first)] == [before.marks, before.marks]
    assert second.unclean == replace(before.unclean, position=1)


class TestRivalNodes:
    """Runs the shard, or disturbs the repair, before it is complete."""

    async def test_no_other_node_claims_the_shard_meanwhile(
        self, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No node has looked yet, so nothing is recorded, and a node's claim would fence the repair off."""
        await grown_again(js, names)
        tried: list[str] = []
        recover_ = recovering.recover

        async def recover_slowly(*args: Any, **more: Any) -> Any:
            with pytest.raises(StreamRecreated, match="was interrupted"):
                await own(js, names, "b")
            tried.append("b")
            return await recover_(*args, **more)

        monkeypatch.setattr(acceptance, "recover", recover_slowly)
        _, count = await repaired(js, names)
        assert (tried, count) == (["b"], 1)


async def test_numbers_continue_above_all_read_events_if_the_journal_lost_its_tail(
    js: JetStream, names: Names
) -> None:
    """The node that found the loss had read further than the journal, and may have numbered each event."""
    await grown_again(js, names)
    claimed = await claim(js, names, SHARD, "a", Clocks(), may_claim=any_node, accepts_loss=True)
    assert not isinstance(claimed, NotOwned)
    loss = Loss(names.deliveries, Mark(position=1010, stored_at=1.5), "it is gone")
    await refuse(js, names, SHARD, claimed.epoch, loss, RecordedLoss(node="a", at=1.5, stream=""))
    await release(js, names, claimed, "a")
    await repaired(js, names)
    [fact] = (await last_flush(js, names)).facts
    assert isinstance(fact, Repaired)
    assert fact.next_sequence == 10 + 512 + 1000 + 1


async def test_the_place_of_the_message_that_was_lost_is_empty(js: JetStream, names: Names) -> None:
    """An operator deleted the newer message there; the others are still not the lost ones."""
    await grown_again(js, names)
    with pytest.raises(StreamRecreated):
        await own(js, names, "b")
    await js.delete(names.deliveries, 10)
    [gap] = (await find_damage(js, names, SHARD)).gaps
    assert (gap.kept.position, gap.known.position) == (0, 10)
    _, count = await repaired(js, names)
    assert count == 1


async def test_a_node_has_read_of_the_new_tail_already(js: JetStream, names: Names) -> None:
    """The message was read for a parked receiver before the stream was compared; all below it is new, too."""
    await grown_again(js, names)
    with pytest.raises(StreamRecreated):
        await own(js, names, "b")
    claimed = await claim(js, names, SHARD, "b", Clocks(), may_claim=any_node, accepts_loss=True)
    assert not isinstance(claimed, NotOwned)
    shard, new = Recording(js, names, claimed), await mark_at(js, names, 12)
    shard.listening.known = Marks(deliveries=new)
    event = Numbered(sequence=1, position=12, id="new", stored_at=new.stored_at)
    await shard.record(Delivered(receiver="acme.other", events=(event,), at=2.5, attempt=1, status=200))
    await shard.stop()
    await release(js, names, claimed, "b")
    [gap] = (await find_damage(js, names, SHARD)).gaps
    assert (gap.kept.position, gap.known.position) == (0, 12)


async def test_no_position_beyond_the_end_that_is_left_is_kept(js: JetStream, names: Names) -> None:
    """Otherwise a later `forget` up to that position would drop new events as well."""
    for _ in range(10):
        await publish(js, names, RECEIVER)
    await own(js, names, "a")
    await own(js, names, "b")  # Not cleanly: up to 10 something may have been posted.
    await recreate(js, names, names.deliveries)
    for _ in range(4):
        await publish(js, names, RECEIVER)
    await repaired(js, names)
    claimed = await own(js, names, "c")
    assert claimed.position == 4
    assert claimed.unclean is not None
    assert claimed.unclean.position == 4
