"""The rules of reading cursors and of `routed`, each taken out by itself."""

from typing import Any

from msgspec.structs import replace

from streams import purge
from streams.buckets.receivers import Receivers
from streams.installation import topology
from streams.journal import claim
from streams.journal.claim import JournalPast
from streams.journal.journal import Journal
from streams.nats.wire import Message
from streams.reading import pull, reader
from streams.reading.pull import Puller
from streams.reading.reply_subject import delivery_info
from streams.routing.tenants import Tenants
from streams.routing_progress import NOTHING_ROUTED, RoutingProgress
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios import reading, routing

_read_past, _on_answer, _on_status = claim.read_past, Puller._on_answer, Puller._on_status
_repeat_ack, _cursor = Puller.repeat_ack, topology.cursor


def _beyond_the_unconfirmed(tenants: Tenants[Any]) -> int:
    return tenants.highest


async def _unrepeated(*args: Any) -> JournalPast:
    """Forget what was routed."""
    return replace(await _read_past(*args), routing=NOTHING_ROUTED)


async def _routed_to_the_end(*args: Any) -> JournalPast:
    return replace(await _read_past(*args), routing=RoutingProgress(routed=purge.ANY_POSITION))


def _whatever_the_number(puller: Puller, message: Message) -> None:
    if message.reply:
        puller._last = delivery_info(message.reply).number - 1
    _on_answer(puller, message)


def _deaf_to_heartbeats(puller: Puller, headers: dict[str, str]) -> None:
    if headers.get("Status") != "100":
        _on_status(puller, headers)


def _unheard_of_its_end(puller: Puller, headers: dict[str, str]) -> None:
    """Repeat a request that has no responder."""
    if headers.get("Status") == "503":
        puller._retry_s = pull.RETRY_PAUSE_MAX_S
        puller._ended({})
    else:
        _on_status(puller, headers)


def _never_silent(puller: Puller) -> None:
    puller._check_later()


def _sent_once(puller: Puller) -> None:
    if puller.__dict__.get("_told") != puller._acked:
        puller.__dict__["_told"] = puller._acked
        _repeat_ack(puller)


def _from_the_next(name: str, subjects: str, start: int) -> dict[str, Any]:
    """A cursor begins with what is stored from now on."""
    return {**_cursor(name, subjects, start), "deliver_policy": "new", "opt_start_seq": 0}


CURSOR_MUTANTS = [
    Mutant("routed-unconfirmed", "`routed` passes an event when all its copies are confirmed",
           ((Tenants, "routed", property(_beyond_the_unconfirmed)),),
           routing.one_of_two_copies_is_stored),
    Mutant("routed-forgotten", "`routed` never falls: a claim repeats it",
           ((claim, "read_past", _unrepeated),)),
    Mutant("routed-with-facts-alone", "a risen `routed` alone is worth a flush",
           ((Journal, "routing_moved", lambda journal: None),),
           routing.last_event_is_routed_and_nothing_else_happens),
    Mutant("purged-beyond-routed", "events are purged up to what is recorded as routed",
           ((purge, "read_past", _routed_to_the_end),)),
    Mutant("cursor-from-now", "a cursor begins behind what is recorded",
           ((reader, "cursor", _from_the_next),),
           reading.cursor_vanishes_unnoticed),
    Mutant("gap-in-the-numbers", "a number that is not the next is a gap",
           ((Puller, "_on_answer", _whatever_the_number),)),
    Mutant("heartbeats-unheeded", "a heartbeat that knows of more is a gap",
           ((Puller, "_on_status", _deaf_to_heartbeats),),
           reading.last_message_is_lost),
    Mutant("gone-unnoticed", "a cursor that is gone is replaced",
           ((Puller, "_on_status", _unheard_of_its_end), (Puller, "_check_heartbeat", _never_silent)),
           reading.cursor_vanishes_unnoticed),
    Mutant("ack-sent-once", "the last ack is repeated with each heartbeat",
           ((Puller, "repeat_ack", _sent_once),),
           reading.last_ack_is_lost),
    Mutant("copies-from-before", "an event stored before the receiver was last put anew gets no copy",
           ((Receivers, "existing_at", lambda receivers, at, subscribers: subscribers),),
           routing.event_from_before_its_receiver_was_put_anew),
]  # fmt: skip
