"""The rules by which a lost tail of a stream is known, each taken out by itself."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from actors.machine.facts import Fact
from actors.machine.state import State
from angarium.node import shard
from angarium.node.node import Node
from streams.clock import Timekeeper
from streams.installation.topology import Names
from streams.journal import claim, refusal
from streams.journal.claim import Claim, NotOwned
from streams.journal.journal import Journal
from streams.lost_tails import comparison
from streams.lost_tails.comparison import Loss
from streams.lost_tails.marks import Mark, Marks
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.reading import backlog, reader
from streams.reading.inbox import Inbox
from streams.repair import acceptance, damage
from streams.repair.acceptance import FlushMembers, Repair
from streams.storage import purge
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios.recovery import repairs
from tests.sim.scenarios.recovery import tails as losses

_find_loss, _compare_once = comparison.find_loss, comparison.compare_once
_bring_back, _record, _draft = Repair.bring_back, Repair.record, claim.draft_claim
_route_again = Repair.route_again


async def _believe(*_: Any) -> None:
    """Compares nothing."""


def _unseen_in(ending: str) -> Callable[[JetStream, str, Mark], Awaitable[Loss | None]]:
    async def lost(js: JetStream, stream: str, mark: Mark) -> Loss | None:
        return None if stream.endswith(ending) else await _find_loss(js, stream, mark)

    return lost


async def _compare_positions(js: JetStream, stream: str, mark: Mark, since: float) -> comparison.Comparison:
    return await _compare_once(js, stream, replace(mark, stored_at=0.0), since)


async def _as_recorded(*_: Any) -> int:
    """Take every recorded position for one of this stream."""
    return purge.ANY_POSITION


async def _is_gone_for_good(*_: Any) -> bool:
    """Treats purged messages as never missing."""
    return True


def _source_as_position(marks: Marks, position: int) -> int:
    return position


def _routed_as_before(repairing: Repair, after: FlushMembers, gap: damage.LostTail) -> FlushMembers:
    """Leave `routed` as it was, although its positions are used again."""
    return replace(_route_again(repairing, after, gap), routing=after.routing)


def _without_a_gap_where_clean(
    repairing: Repair, states: dict[str, State], position: int, left_out: int
) -> list[Fact]:
    return _bring_back(repairing, states, position, 0 if repairing.claim.clean else left_out)


async def _with_the_first_flush(repairing: Repair, facts: Sequence[Fact], after: FlushMembers) -> None:
    repairing.claim = replace(repairing.claim, floor=after.floor, marks=after.marks)
    await _record(repairing, facts, after)


async def _trimmed(js: JetStream, names: Names, attempt: Any, time: Timekeeper) -> Claim | NotOwned:
    """Positions beyond the end that is left are dropped at once."""
    drafted = await _draft(js, names, attempt, time)
    if isinstance(drafted, NotOwned) or drafted.unclean is None or not attempt.accepts_loss:
        return drafted
    end = (await stream_info(js, names.deliveries)).last
    return replace(drafted, unclean=replace(drafted.unclean, position=min(drafted.unclean.position, end)))


async def _unheld(*_: Any) -> bool:
    """Records nothing."""
    return True


async def _kept(*_: Any) -> None:
    """A node keeps what it may not run."""


TAIL_MUTANTS = (
    Mutant("tail-unseen-at-the-claim", "marks are compared at each claim",
           ((claim, "compare_or_refuse", _believe),),
           losses.deliveries_lose_their_tail_between_nodes),
    Mutant("tail-unseen-by-the-inbox", "the inbox compares before it begins, and after each gap",
           ((reader, "find_loss", _unseen_in("_DELIVERIES")),),
           losses.deliveries_lose_their_tail_under_a_node),
    Mutant("tail-unseen-by-the-router", "the router compares before it begins, and after each gap",
           ((reader, "find_loss", _unseen_in("_EVENTS")),),
           losses.events_lose_their_tail_under_a_node),
    Mutant("tail-known-by-position", "a message is known by its time, not by its position alone",
           ((comparison, "compare_once", _compare_positions),),
           losses.deliveries_lose_their_tail_between_nodes),
    Mutant("marks-with-facts-alone", "a risen mark of the events alone is worth a flush",
           ((Journal, "routing_moved", lambda journal: None),),
           losses.events_lose_their_tail_at_once),
    Mutant("sources-given-again", "sources go on above all that were ever given",
           ((Marks, "source", _source_as_position),),
           repairs.lost_events_are_accepted),
    Mutant("routed-as-before", "after an accepted loss the router goes on behind what is left",
           ((Repair, "route_again", _routed_as_before),),
           repairs.lost_events_are_accepted),
    Mutant("actors-not-brought-back", "actors go back to what is left of the stream",
           ((acceptance, "repair", lambda state, **_: None),),
           repairs.lost_deliveries_are_accepted),
    Mutant("numbers-from-the-record", "numbers go on above what was given and not recorded",
           ((acceptance, "UNRECORDED_MAX", 0),),
           repairs.posted_events_are_lost),
    Mutant("gap-after-unclean-claims-alone", "a clean claim may hide an unclean one",
           ((Repair, "bring_back", _without_a_gap_where_clean),),
           repairs.tail_is_lost_after_another_node_had_the_shard),
    Mutant("refusal-unlifted", "a refusal ends where the message is there again",
           ((refusal, "lift", _believe),),
           losses.the_right_stream_is_brought_back),
    Mutant("deliveries-purged-by-an-old-checkpoint", "nothing is purged by records of a tail that is lost",
           ((purge, "trusted_end_of", _as_recorded),),
           losses.deliveries_are_purged_without_their_tail),
    Mutant("events-purged-by-an-old-flush", "nothing is purged by records of a tail that is lost",
           ((purge, "trusted_end_of", _as_recorded),),
           losses.events_are_purged_without_their_tail),
    Mutant("refusal-lifted-by-a-purge", "a refusal does not end because the place was purged",
           ((refusal, "has_message", _is_gone_for_good),),
           losses.the_place_of_a_lost_message_is_purged),
    Mutant("new-tail-marked", "what is read before the inbox has compared raises no mark",
           ((Inbox, "is_compared", True),),
           losses.the_new_tail_is_read_before_any_node_compares),
    Mutant("read-beside-forgotten", "what was read beside the inbox is compared, be it recorded or not",
           ((backlog, "higher_mark", lambda known, read: known),),
           losses.a_read_outside_the_inbox_is_lost),
    Mutant("memory-uncompared", "who goes on from memory compares what it knows, not the record alone",
           ((shard, "find_loss", _believe),),
           losses.a_flush_known_to_memory_alone_is_lost),
    Mutant("marks-before-the-last-flush", "only the last flush of a repair says what holds from then on",
           ((Repair, "record", _with_the_first_flush),),
           repairs.repair_is_cut_off_between_two_flushes),
    Mutant("unclean-trimmed-at-the-claim", "a repair forgets nothing before its last flush",
           ((claim, "draft_claim", _trimmed),),
           repairs.repair_is_cut_off_between_two_flushes),
    Mutant("repair-unheld", "while a shard is repaired, it is recorded as refused",
           ((acceptance, "refuse", _unheld),),
           repairs.nodes_come_while_it_is_repaired),
    Mutant("claimed-before-the-record-is-read", "a refused shard is not claimed",
           ((claim, "check_record", _believe),),
           repairs.nodes_come_while_it_is_repaired),
    Mutant("refused-and-held", "a shard that is refused is released, also where its memory is kept",
           ((Node, "give_up_shard", _kept),),
           repairs.the_owner_wakes_during_a_repair),
    Mutant("deleted-as-the-same", "a message that was deleted proves nothing",
           ((damage, "has_message", _is_gone_for_good),),
           repairs.the_place_of_a_lost_message_is_deleted),
    Mutant("removals-of-another-bucket", "removals are counted by the bucket that there is",
           ((acceptance, "set_removal", lambda state, **_: None),),
           repairs.configurations_are_recreated),
)  # fmt: skip
