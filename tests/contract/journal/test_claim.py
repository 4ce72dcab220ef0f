"""Claiming a shard: whatever happens between two steps, the journal has one owner and epochs only rise."""

import asyncio

import msgspec
import pytest

from actors.errors import Unavailable
from actors.machine.bucket import Unclean
from actors.machine.facts import Claimed
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint
from streams.journal.claim import Claim, NotOwned, Owner, Predecessor, claim, give_up_claim, release
from streams.journal.envelope import Flush, decode_flush, encode_flush
from streams.journal.routing_progress import NOTHING_ROUTED
from streams.journal.snapshots import Snapshots
from streams.lost_tails.marks import Mark, Marks
from streams.nats.errors import StreamRecreated
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import EXPECTED
from tests.contract.support.faults import FaultyJetStream, ack_lost, after, refused, request_lost
from tests.contract.support.shards import SHARD, Clocks, any_node, own
from tests.support.installation import publish


async def journal_of(js: JetStream, names: Names) -> list[Flush]:
    page = await js.read(names.journal, names.journal_of(SHARD), 1)
    return [decode_flush(message.data, "the journal") for message in page.messages]


async def owner_of(js: JetStream, names: Names) -> Owner:
    message = await js.last_message(names.actors, names.actor_keys.owner(SHARD))
    assert message is not None
    return msgspec.json.decode(message.data, type=Owner)


async def append_as(js: JetStream, names: Names, node: str, epoch: int, flush: int, floor: int = 0) -> None:
    """Appends a flush, as another owner does meanwhile."""
    data = encode_flush(
        node=node,
        epoch=epoch,
        flush=flush,
        floor=floor,
        routing=NOTHING_ROUTED,
        at=0.0,
        unclean=None,
        facts=[],
    )
    await js.publish(names.journal_of(SHARD), data)


class TestFirstClaim:
    async def test_the_first_claim_is_recorded_and_clean(self, js: JetStream, names: Names) -> None:
        position = await publish(js, names, "acme.billing")
        clocks = Clocks()
        claimed = await own(js, names, "a", clocks=clocks)
        end = await js.message(names.deliveries, position)
        assert end is not None
        assert claimed == Claim(
            shard=SHARD,
            epoch=claimed.epoch,
            at=clocks.now,
            boottime=clocks.since_boot,
            clean=True,
            position=position,
            unclean=None,
            journal_position=claimed.journal_position,
            floor=0,
            routing=NOTHING_ROUTED,
            predecessor=None,
            marks=Marks(deliveries=Mark(position=position, stored_at=end.stored_at)),
        )
        [flush] = await journal_of(js, names)
        assert (flush.node, flush.epoch, flush.flush, flush.floor) == ("a", claimed.epoch, 0, 0)
        assert flush.facts == (Claimed(epoch=claimed.epoch, at=clocks.now, clean=True, position=position),)
        assert await owner_of(js, names) == Owner(node="a", at=clocks.now)

    async def test_permission_is_asked_before_the_first_claim(self, js: JetStream, names: Names) -> None:
        await own(js, names, "a")
        asked: list[Owner | None] = []

        def no_node(owner: Owner | None) -> bool:
            asked.append(owner)
            return False

        lost = await claim(js, names, SHARD, "b", Clocks(), may_claim=no_node)
        assert lost == NotOwned("a holds it")
        assert [owner.node for owner in asked if owner] == ["a"]
        assert (await owner_of(js, names)).node == "a"

    async def test_a_claim_takes_its_position_after_the_owner_was_put(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        """The former owner may have posted any message from before, so the position is above them all."""
        faulty.faults[names.actor_keys.owner(SHARD)].append(after(lambda: publish(js, names, "acme.billing")))
        assert (await own(faulty, names, "a")).position == 1


class TestCleanClaims:
    """Clean is a claim after which no owner can have posted anything unrecorded."""

    async def test_a_claim_after_a_release_is_clean(self, js: JetStream, names: Names) -> None:
        first = await own(js, names, "a")
        assert await release(js, names, first, "a")
        assert (await owner_of(js, names)).released == first.epoch
        second = await own(js, names, "b")
        assert (second.clean, second.unclean) == (True, None)
        assert second.predecessor == Predecessor("a", first.epoch, 0, first.journal_position)
        assert second.epoch > first.epoch

    async def test_a_claim_without_a_release_is_unclean(self, js: JetStream, names: Names) -> None:
        await own(js, names, "a")
        position = await publish(js, names, "acme.billing")
        clocks = Clocks()
        second = await own(js, names, "b", clocks=clocks)
        assert not second.clean
        assert second.unclean == Unclean(second.epoch, position, clocks.now)

    async def test_the_last_unclean_claim_is_handed_on(self, js: JetStream, names: Names) -> None:
        await own(js, names, "a")
        unclean = await own(js, names, "b")
        await release(js, names, unclean, "b")
        third = await own(js, names, "c")
        assert (third.clean, third.unclean) == (True, unclean.unclean)
        await release(js, names, third, "c")
        assert (await own(js, names, "d")).unclean == unclean.unclean
        fact = (await journal_of(js, names))[-1].facts[0]
        assert isinstance(fact, Claimed)
        assert (fact.clean, fact.unclean_epoch) == (True, unclean.epoch)

    async def test_a_claim_is_unclean_if_the_released_epoch_is_not_the_journals(
        self, js: JetStream, names: Names
    ) -> None:
        """A node put `_owner`, gave up before it recorded that, and released it: the one before did not."""
        first = await own(js, names, "a")
        await js.publish(names.actor_keys.owner(SHARD), msgspec.json.encode(Owner(node="b", at=0.0)))
        given_up = await js.last_message(names.actors, names.actor_keys.owner(SHARD))
        assert given_up is not None
        released = Owner(node="b", at=0.0, released=given_up.position)
        await js.publish(names.actor_keys.owner(SHARD), msgspec.json.encode(released))
        assert given_up.position != first.epoch
        assert not (await own(js, names, "c")).clean

    async def test_a_claim_is_unclean_if_the_owner_is_missing_and_the_journal_is_not(
        self, js: JetStream, names: Names
    ) -> None:
        await append_as(js, names, "a", 0, 7)
        assert not (await own(js, names, "b")).clean

    async def test_a_claim_is_unclean_if_the_owner_was_deleted(self, js: JetStream, names: Names) -> None:
        """An empty journal alone does not make a shard new."""
        await js.publish(names.actor_keys.owner(SHARD), b"", {"KV-Operation": "DEL"})
        claimed = await own(js, names, "b")
        assert not claimed.clean

    async def test_a_claim_of_a_process_whose_memory_is_whole_is_clean(
        self, js: JetStream, names: Names
    ) -> None:
        first = await own(js, names, "a")
        again = await own(js, names, "a", resumes=first.epoch)
        assert (again.clean, again.unclean) == (True, None)
        assert again.predecessor == Predecessor("a", first.epoch, 0, first.journal_position)

    async def test_a_claim_is_unclean_if_another_node_owned_in_between(
        self, js: JetStream, names: Names
    ) -> None:
        first = await own(js, names, "a")
        await own(js, names, "b")
        assert not (await own(js, names, "a", resumes=first.epoch)).clean


class TestFloor:
    async def test_the_floor_is_that_of_the_last_flush(self, js: JetStream, names: Names) -> None:
        first = await own(js, names, "a")
        await append_as(js, names, "a", first.epoch, 1, floor=17)
        assert (await own(js, names, "b")).floor == 17
        assert (await journal_of(js, names))[-1].floor == 17

    async def test_the_floor_is_the_checkpoints_if_the_journal_has_aged_out(
        self, js: JetStream, names: Names
    ) -> None:
        first = await own(js, names, "a")
        unclean = Unclean(first.epoch, 3, 1.0)
        checkpoint = Checkpoint(journal_position=first.journal_position, floor=17, routed=9, unclean=unclean)
        assert await Snapshots(js, names, first).write([], [], first.journal_position, checkpoint)
        await release(js, names, first, "a")
        await js.purge(names.journal, first.journal_position + 1)
        second = await own(js, names, "b")
        assert second.floor == 17
        assert second.predecessor is None
        assert second.unclean == Unclean(second.epoch, second.position, second.at)


class TestRivalClaims:
    """A second claimer between any two steps."""

    async def test_one_of_many_wins(self, js: JetStream, names: Names) -> None:
        claims = await asyncio.gather(
            *(claim(js, names, SHARD, node, Clocks(), may_claim=any_node) for node in "abcdef")
        )
        epochs = [flush.epoch for flush in await journal_of(js, names)]
        assert epochs == sorted(epochs)
        won = [each for each in claims if isinstance(each, Claim)]
        assert max(each.epoch for each in won) == epochs[-1]

    async def test_a_rival_before_the_owner_is_put_wins(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        faulty.faults[names.actor_keys.owner(SHARD)].append(after(lambda: own(js, names, "b")))
        lost = await claim(faulty, names, SHARD, "a", Clocks(), may_claim=any_node)
        assert lost == NotOwned("another node was faster")
        assert [flush.node for flush in await journal_of(js, names)] == ["b"]

    async def test_a_rival_before_the_journal_is_read_wins(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        faulty.before_last[names.journal_of(SHARD)].append(lambda: own(js, names, "b"))
        lost = await claim(faulty, names, SHARD, "a", Clocks(), may_claim=any_node)
        assert lost == NotOwned("another node claimed it meanwhile")
        assert [flush.node for flush in await journal_of(js, names)] == ["b"]

    async def test_a_rival_before_the_owner_is_read_again_wins(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        """The rival has put `_owner` and not recorded it yet: the journal alone would not show it."""
        rival = msgspec.json.encode(Owner(node="b", at=0.0))
        hooks = faulty.before_last[names.actor_keys.owner(SHARD)]
        hooks.append(lambda: asyncio.sleep(0))
        hooks.append(lambda: js.publish(names.actor_keys.owner(SHARD), rival))
        lost = await claim(faulty, names, SHARD, "a", Clocks(), may_claim=any_node)
        assert lost == NotOwned("another node claimed it meanwhile")
        assert await journal_of(js, names) == []

    async def test_a_rival_before_the_claim_is_recorded_wins(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        faulty.faults[names.journal_of(SHARD)].append(after(lambda: own(js, names, "b")))
        lost = await claim(faulty, names, SHARD, "a", Clocks(), may_claim=any_node)
        assert lost == NotOwned("another node claimed it meanwhile")
        assert [flush.node for flush in await journal_of(js, names)] == ["b"]

    async def test_a_last_append_of_the_owner_before_counts(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        """The former owner's late flush counts, and the claim starts again from it."""
        first = await own(js, names, "a")
        last_words = after(lambda: append_as(js, names, "a", first.epoch, 1, floor=5))
        faulty.faults[names.journal_of(SHARD)].append(last_words)
        claimed = await own(faulty, names, "b")
        assert claimed.floor == 5
        assert claimed.predecessor == Predecessor("a", first.epoch, 1, claimed.journal_position - 1)


class TestLostAnswers:
    async def test_a_lost_answer_to_the_put_of_the_owner_changes_nothing(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        faulty.faults[names.actor_keys.owner(SHARD)] += [request_lost, ack_lost]
        claimed = await own(faulty, names, "a")
        assert claimed.clean
        message = await js.last_message(names.actors, names.actor_keys.owner(SHARD))
        assert message is not None
        assert claimed.epoch == message.position

    async def test_a_lost_answer_to_the_record_changes_nothing(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        faulty.faults[names.journal_of(SHARD)] += [request_lost, refused(10164), refused(10158), ack_lost]
        claimed = await own(faulty, names, "a")
        assert len(await journal_of(js, names)) == 1
        last = await js.last_message(names.journal, names.journal_of(SHARD))
        assert last is not None
        assert claimed.journal_position == last.position

    async def test_a_lost_answer_to_the_release_changes_nothing(
        self, js: JetStream, names: Names, faulty: FaultyJetStream
    ) -> None:
        claimed = await own(js, names, "a")
        faulty.faults[names.actor_keys.owner(SHARD)] += [request_lost, ack_lost]
        assert await release(faulty, names, claimed, "a")
        assert (await own(js, names, "b")).clean


class TestRelease:
    async def test_a_release_of_another_owners_claim_changes_nothing(
        self, js: JetStream, names: Names
    ) -> None:
        first = await own(js, names, "a")
        second = await own(js, names, "b")
        assert not await release(js, names, first, "a")
        assert (await owner_of(js, names)).node == "b"
        assert await release(js, names, second, "b")

    async def test_a_release_expects_the_claims_own_revision(
        self, names: Names, faulty: FaultyJetStream
    ) -> None:
        claimed = await own(faulty, names, "a")
        await release(faulty, names, claimed, "a")
        _, headers = faulty.published[names.actor_keys.owner(SHARD)][-1]
        assert headers[EXPECTED] == str(claimed.epoch)


class TestGiveUpClaim:
    """A claim that came to nothing, and is given up."""

    async def test_a_claim_that_is_given_up_lets_another_node_claim_uncleanly(
        self, js: JetStream, names: Names
    ) -> None:
        first = await own(js, names, "a")
        assert await give_up_claim(js, names, SHARD, "a", may_claim=any_node)
        assert (await owner_of(js, names)).released == 0
        second = await own(js, names, "b")
        assert (second.clean, second.unclean is not None) == (False, True)
        assert second.epoch > first.epoch

    @pytest.mark.parametrize("by", ["a", "b"])
    async def test_giving_up_touches_nothing_that_is_released_or_another_nodes(
        self, js: JetStream, names: Names, by: str
    ) -> None:
        owned = await own(js, names, "a")
        if by == "a":
            await release(js, names, owned, "a")
        before = await owner_of(js, names)
        assert not await give_up_claim(js, names, SHARD, by, may_claim=any_node)
        assert await owner_of(js, names) == before

    async def test_giving_up_touches_nothing_of_a_process_of_the_same_name_that_may_be_asleep(
        self, js: JetStream, names: Names
    ) -> None:
        await own(js, names, "a")
        assert not await give_up_claim(js, names, SHARD, "a", may_claim=lambda _: False)
        assert (await owner_of(js, names)).released is None

    async def test_a_release_is_not_believed_from_a_deposed_leader(
        self, names: Names, faulty: FaultyJetStream
    ) -> None:
        await own(faulty, names, "a")
        faulty.answers[names.actor_keys.owner(SHARD)].append(None)
        with pytest.raises(Unavailable):
            await give_up_claim(faulty, names, SHARD, "a", may_claim=any_node)
        assert await give_up_claim(faulty, names, SHARD, "a", may_claim=any_node)

    async def test_giving_up_a_shard_that_was_never_claimed_does_nothing(
        self, js: JetStream, names: Names
    ) -> None:
        assert not await give_up_claim(js, names, SHARD, "a", may_claim=any_node)
        assert await js.last_message(names.actors, names.actor_keys.owner(SHARD)) is None


class TestRecreatedBucket:
    async def test_another_bucket_is_distinguished_from_a_rival(self, js: JetStream, names: Names) -> None:
        """The journal carries an epoch that the bucket's revisions have not come to."""
        await append_as(js, names, "z", 1_000_000, 3)
        with pytest.raises(StreamRecreated, match=r"_actors .* revision \d+, the journal's 1000000"):
            await claim(js, names, SHARD, "a", Clocks(), may_claim=any_node)
