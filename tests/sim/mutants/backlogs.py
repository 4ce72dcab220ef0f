"""Rules about what is given up, discarded, erased and buried, each taken out by itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.ids import KEY_BYTES
from actors.machine import commands as c
from actors.machine import decide as machine
from actors.machine import facts
from actors.machine.bucket import Bucket
from actors.machine.facts import Burial
from actors.machine.numbering import Frontier
from actors.machine.scheduling import steps as s
from actors.machine.scheduling.next_step import next_step
from actors.machine.scheduling.view import View
from actors.machine.state import State
from actors.memory.cursor import Cursor
from actors.runtime import actor, discard, live_state
from actors.runtime.actor import Actor
from actors.runtime.discard import DiscardedEvents
from actors.runtime.host import Host
from actors.runtime.live_state import LiveState
from actors.runtime.operator_actions import end_deliveries, forget
from actors.runtime.posting_bounds import PostingBounds
from streams.dead_letters.bury import DeadLetterWriter
from streams.nats.answers import StoredMessage
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios import backlogs, discarding, erasing
from tests.sim.scenarios.recovery import storage


def _bury_at_once(state: State, policy: Policy | None, view: View, now: float) -> s.Step:
    if state.burials and not view.burying:
        return s.Bury(state.burials)
    return next_step(state, policy, view, now)


_store_letter = DeadLetterWriter.store_letter


async def _store_once(
    dead_letters: DeadLetterWriter,
    receiver: str,
    burial: Burial,
    message: StoredMessage | None,
    answer_text: str,
) -> None:
    await _store_letter(dead_letters, receiver, burial, message, answer_text)


async def _read_by_replica(actor: Actor, frontier: Frontier, to: int) -> DiscardedEvents:
    """A replica that knows of nothing has nothing."""
    if await discard.count_between(actor, frontier.position, to) <= 0:
        return DiscardedEvents(0, frontier.source, b"")
    return await _read(actor, frontier, to)


_read = discard.read_discarded


async def _read_no_keys(actor: Actor, frontier: Frontier, to: int) -> DiscardedEvents:
    return replace(await _read(actor, frontier, to), keys=b"")


async def _read_no_source(actor: Actor, frontier: Frontier, to: int) -> DiscardedEvents:
    return replace(await _read(actor, frontier, to), source=0)


async def _read_few_keys(actor: Actor, frontier: Frontier, to: int) -> DiscardedEvents:
    """Reads as many keys as the window held while they waited."""
    found = await _read(actor, frontier, to)
    return replace(found, keys=found.keys[-frontier.size * KEY_BYTES :])


@asynccontextmanager
async def _awaiting_nothing(actor: Actor) -> AsyncIterator[None]:
    """Goes on without waiting for attempts in flight."""
    actor.hold_count += 1
    yield
    actor.hold_count -= 1
    actor.wake()


@asynccontextmanager
async def _going_on(actor: Actor) -> AsyncIterator[None]:
    """Waits for attempts in flight, and lets others begin meanwhile."""
    while actor.pending.in_flight:
        await actor.until_attempt_ends()
    yield
    actor.wake()


async def _removed_to_first(actor: Actor, removed_at: float) -> int:
    first = await actor.environment.backlog.first_since(actor.receiver, removed_at)
    posted_to_max = actor.pending.posting.posted_to_max
    return (
        posted_to_max if first is None else max(actor.state.frontier.position, min(posted_to_max, first - 1))
    )


_may_have_posted = Host.may_have_posted


def _posted_unparked(host: Host, state: State, first_unacked: int) -> bool:
    return _may_have_posted(host, replace(state, parked=False), first_unacked)


def _decide_without(kind: type, member: str) -> Any:
    """Decides as if the command did not carry that."""

    def decide(
        state: State, policy: Policy | None, command: c.Command, at: float, bucket: Bucket | None
    ) -> list[facts.Fact]:
        if isinstance(command, kind):
            command = replace(command, **{member: 0})
        return machine.decide(state, policy, command, at, bucket)

    return decide


def _decide_without_source(
    state: State, policy: Policy | None, command: c.Command, at: float, bucket: Bucket | None
) -> list[facts.Fact]:
    if isinstance(command, c.RefuseEvent):
        command = replace(command, event=replace(command.event, source=0))
    return machine.decide(state, policy, command, at, bucket)


_record = LiveState.record


def _record_newest_removal(live: LiveState, command: c.Command, now: float) -> None:
    newest = live.environment.policies.removal(live.receiver)
    if isinstance(command, c.OpenReceiver) and newest is not None:
        command = replace(command, removal=newest.revision)
    _record(live, command, now)


def _step_unremoved(state: State, policy: Policy | None, view: View, now: float) -> s.Step:
    return next_step(state, policy, replace(view, removal_revision=0), now)


async def _unnumbered(actor: Actor, position: int) -> bool:
    return position <= actor.state.frontier.position


async def _at_once(host: Host, index: int) -> None:
    return


BACKLOG_MUTANTS = [
    Mutant("buried-unconfirmed", "a dead letter is a fact first, confirmed, and then buried",
           ((actor, "next_step", _bury_at_once),),
           backlogs.death_is_lost),
    Mutant("buried-unstored", "a burial is repeated until it is stored",
           ((DeadLetterWriter, "store_letter", _store_once),),
           storage.stream_is_full_while_a_refused_event_is_not_buried),
    Mutant("forgot-unconfirmed", "Forgot is confirmed before anything is posted beyond it",
           ((live_state, "NEEDS_NO_CONFIRMATION", (*machine.NEEDS_NO_CONFIRMATION, facts.Forgot)),),
           backlogs.forgetting_is_lost),
    Mutant("gap-by-replica", "what is forgotten is read to its end, by the leader's word",
           ((discard, "read_discarded", _read_by_replica),),
           discarding.forgotten_events_are_sent_again),
    Mutant("gap-of-what-is-there", "what is forgotten leaves room for all that may have been posted",
           ((PostingBounds, "unrecorded", property(lambda bounds: 0)),),
           discarding.events_are_forgotten_after_posted_ones_were_deleted),
    Mutant("forgot-in-flight", "`forget` and removal wait for what is in flight",
           ((discard, "while_idle", _awaiting_nothing), (forget, "while_idle", _awaiting_nothing)),
           discarding.events_are_forgotten_during_an_attempt_whose_message_is_gone),
    Mutant("forgot-going-on", "nothing begins while all is forgotten or removed",
           ((discard, "while_idle", _going_on), (forget, "while_idle", _going_on)),
           discarding.events_are_forgotten_as_the_next_attempt_begins),
    Mutant("discarded-unparked", "what comes while all is discarded waits, and that is recorded",
           ((Cursor, "has_seen_beyond", lambda cursor, position: False),),
           discarding.events_are_forgotten_while_others_arrive),
    Mutant("discarded-without-ids", "what is discarded enters the window",
           ((discard, "read_discarded", _read_no_keys),),
           discarding.one_of_many_forgotten_events_is_sent_again),
    Mutant("discarded-with-few-ids", "what is discarded fills the window, or older ids stay in it too long",
           ((discard, "read_discarded", _read_few_keys),),
           discarding.events_are_forgotten_while_the_window_grows),
    Mutant("discarded-without-sources", "what is discarded raises the highest source",
           ((discard, "read_discarded", _read_no_source),),
           discarding.copy_comes_again_after_its_receiver_is_put_again),
    Mutant("missing-is-one", "what is missing leaves room for all that may have been posted",
           ((live_state, "decide", _decide_without(c.MissEvents, "posted")),),
           discarding.posted_events_are_deleted),
    Mutant("missing-without-source", "what is missing raises the highest source",
           ((live_state, "decide", _decide_without(c.MissEvents, "source")),),
           discarding.deleted_event_is_copied_again),
    Mutant("refused-without-source", "what is refused raises the highest source",
           ((live_state, "decide", _decide_without_source),),
           discarding.refused_event_is_copied_again),
    Mutant("removed-to-the-first", "what an owner that vanished may have posted was the removed receiver's",
           ((discard, "end_of_removed", _removed_to_first),),
           discarding.receiver_is_put_again_under_a_blind_owner),
    Mutant("parked-cannot-have-posted", "an owner that vanished may have posted for one that is parked",
           ((Host, "may_have_posted", _posted_unparked),),
           discarding.owner_dies_after_a_burst_from_a_backlog),
    Mutant("put-again-unseen", "a receiver that was put again is removed first",
           ((actor, "next_step", _step_unremoved),),
           backlogs.receiver_is_put_again_at_once),
    Mutant("opened-as-if-obeyed", "a receiver is opened under the last removal that was obeyed",
           ((LiveState, "record", _record_newest_removal),),
           backlogs.receiver_is_put_again_twice),
    Mutant("erased-unnumbered", "what an owner may have posted has its number before it is erased",
           ((end_deliveries, "settle_in_order", _unnumbered),),
           erasing.posted_event_is_erased),
    Mutant("erased-unconfirmed", "a message is erased only when it is recorded that its event is over",
           ((Host, "confirmed_to", _at_once),),
           erasing.event_is_erased_before_its_end_is_recorded),
]  # fmt: skip
