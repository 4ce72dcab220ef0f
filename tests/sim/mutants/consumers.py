"""The rules of reading consumers and of `routed`, each taken out by itself."""

from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from streams.buckets.known_configurations import KnownConfigurations
from streams.installation import topology
from streams.journal import claim
from streams.journal.claim import ShardRecord
from streams.journal.journal import Journal
from streams.journal.routing_progress import NOTHING_ROUTED, RoutingProgress
from streams.nats.wire_names import STATUS
from streams.reading import pull, reader
from streams.reading.pull import Puller, gap_in_status
from streams.reading.reply_subject import DeliveryInfo, delivery_info
from streams.routing.tenants import Tenants
from streams.storage import purge
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios import reading, routing

_read_past, _consumer = claim.read_shard_record, topology.consumer_for_claim
_ack, _repeat_ack = Puller.ack, Puller.repeat_ack


def _beyond_the_unconfirmed(tenants: Tenants[Any]) -> int:
    return tenants.highest


async def _unrepeated(*args: Any) -> ShardRecord:
    """Forget what was routed."""
    return replace(await _read_past(*args), routing=NOTHING_ROUTED)


async def _routed_to_the_end(*args: Any) -> ShardRecord:
    return replace(await _read_past(*args), routing=RoutingProgress(routed=purge.ANY_POSITION))


class _AnyNumber(int):
    """A number that passes for the next one."""

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _whatever_the_number(reply: str) -> DeliveryInfo:
    info = delivery_info(reply)
    return replace(info, number=_AnyNumber(info.number))


def _deaf_to_heartbeats(headers: dict[str, str], last: int) -> str:
    return "" if headers.get(STATUS) == "100" else gap_in_status(headers, last)


def _unheard_of_its_end(headers: dict[str, str], last: int) -> str:
    """Repeat a request that has no responder."""
    return "" if headers.get(STATUS) == "503" else gap_in_status(headers, last)


_acking = ContextVar("_acking", default=False)


def _ack_once(puller: Puller, position: int) -> None:
    token = _acking.set(True)
    try:
        _ack(puller, position)
    finally:
        _acking.reset(token)


def _sent_once(puller: Puller) -> None:
    if _acking.get():
        _repeat_ack(puller)


def _from_the_next(name: str, subjects: str, start: int) -> dict[str, Any]:
    """A consumer begins with what is stored from now on."""
    return {**_consumer(name, subjects, start), "deliver_policy": "new", "opt_start_seq": 0}


CONSUMER_MUTANTS = [
    Mutant("routed-unconfirmed", "`routed` passes an event when all its copies are confirmed",
           ((Tenants, "routed", property(_beyond_the_unconfirmed)),),
           routing.one_of_two_copies_is_stored),
    Mutant("routed-forgotten", "`routed` never falls: a claim repeats it",
           ((claim, "read_shard_record", _unrepeated),)),
    Mutant("routed-with-facts-alone", "a risen `routed` alone is worth a flush",
           ((Journal, "routing_moved", lambda journal: None),),
           routing.last_event_is_routed_and_nothing_else_happens),
    Mutant("purged-beyond-routed", "events are purged up to what is recorded as routed",
           ((purge, "read_shard_record", _routed_to_the_end),)),
    Mutant("consumer-from-now", "a consumer begins behind what is recorded",
           ((reader, "consumer_for_claim", _from_the_next),),
           reading.consumer_vanishes_unnoticed),
    Mutant("gap-in-the-numbers", "a number that is not the next is a gap",
           ((pull, "delivery_info", _whatever_the_number),)),
    Mutant("heartbeats-unheeded", "a heartbeat that knows of more is a gap",
           ((pull, "gap_in_status", _deaf_to_heartbeats),),
           reading.last_message_is_lost),
    Mutant("gone-unnoticed", "a consumer that is gone is replaced",
           ((pull, "gap_in_status", _unheard_of_its_end), (pull, "SILENT_HEARTBEATS_MAX", 1 << 30)),
           reading.consumer_vanishes_unnoticed),
    Mutant("ack-sent-once", "the last ack is repeated with each heartbeat",
           ((Puller, "ack", _ack_once), (Puller, "repeat_ack", _sent_once)),
           reading.last_ack_is_lost),
    Mutant("copies-from-before", "an event stored before the receiver was last put anew gets no copy",
           ((KnownConfigurations, "existing_at", lambda receivers, at, subscribers: subscribers),),
           routing.event_is_older_than_its_receiver),
]  # fmt: skip
