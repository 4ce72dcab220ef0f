"""Checks the room in the streams: for events, for dead letters, and for timed events."""

import math

from angarium import quantities
from angarium.operations.installation import sizing
from angarium.operations.installation.doctor.findings import Finding, ok, problem
from streams.installation.topology import Installation
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.storage.purge import is_short

ROOM_REMEDY = "find out why they are not delivered, or raise max_bytes of the stream"
UNROUTED_REMEDY = (
    "find out what holds them; when it is almost full, the oldest events of the tenant with the most waiting "
    "bytes become dead letters (evicted). Raise that tenant's rate, or max_bytes of the stream"
)


async def check_room(js: JetStream, installation: Installation, name: str, name_holder: bool) -> Finding:
    """Check the room of a stream. Nodes purge unneeded messages, so if it stays full, a shard holds it.

    `name_holder`: say also which shard, receiver or tenant that is.
    """
    info = await stream_info(js, name)
    text = f"{name} holds {quantities.bytes_text(info.bytes)}"
    if info.max_bytes > 0:
        text += f" of {quantities.bytes_text(info.max_bytes)}"
    if info.messages and name_holder:
        text += f"; {await sizing.holder_text(js, installation, info)}"
    if is_short(info):
        return problem("storage", text, UNROUTED_REMEDY if name == installation.names.events else ROOM_REMEDY)
    return ok("storage", text)


async def check_dead_letter_room(js: JetStream, installation: Installation) -> Finding:
    """Check the room for dead letters: only operators drop them, and without room none can be stored."""
    info = await stream_info(js, installation.names.dead_letters)
    letters = quantities.count_text(info.messages, "letter")
    text = f"{info.name} holds {letters}, {quantities.bytes_text(info.bytes)}"
    if is_short(info):
        return problem(
            "storage", text, "redrive or drop some, or raise max_bytes of the stream", "angarium dead"
        )
    return ok("storage", text)


async def check_timed_room(js: JetStream, installation: Installation) -> list[Finding]:
    """Check the room for timed events, and that the events take them when they are due.

    Only time and operators free that room.
    """
    info = await stream_info(js, installation.names.later)
    text = f"{info.name} holds {quantities.bytes_text(info.bytes)} of timed events"
    if is_short(info):
        remedy = "cancel some, or raise max_bytes of the stream"
        found = [problem("storage", text, remedy, "angarium later")]
    else:
        found = [ok("storage", text)]
    events = await stream_info(js, installation.names.events)
    sizes = [each.config.get("max_msg_size", -1) for each in (events, info)]
    taken, stored = (math.inf if size < 0 else size for size in sizes)
    if taken < stored:
        text = f"{events.name} may refuse events that are due: {info.name} has taken larger ones"
        remedy = "raise max_msg_size of the first to that of the second"
        found.append(problem("storage", text, remedy, "nats stream edit"))
    return found
