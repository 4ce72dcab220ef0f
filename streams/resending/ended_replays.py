"""Drops the plans of replays that ended long ago. Each receiver has one, and a removed one keeps it."""

import msgspec

from actors.errors import Unusable
from streams.buckets.expired_keys import drop_expired
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.resending.replay_lock import VERSION, ReplayPlan
from streams.versions import read_versioned

SHOWN_FOR_S = 7 * 86_400.0
"""Time for which a job is shown that has ended, if no other one took its place."""

_plan = msgspec.json.Decoder(ReplayPlan)


async def drop_ended_replays(js: JetStream, names: Names, wall: float, after: int = 0) -> int | None:
    """Drop those of the next plans that ended more than `SHOWN_FOR_S` before `wall`: `drop_expired`."""

    def is_expired(message: StoredMessage) -> bool:
        return wall - message.stored_at > SHOWN_FOR_S and _has_ended(message)

    return await drop_expired(js, names.actors, names.actor_keys.replay("*"), is_expired, after)


def _has_ended(message: StoredMessage) -> bool:
    """True if nothing is left to do; False if it cannot be read, which `angarium job list` reports."""
    try:
        plan = read_versioned(_plan, message.data, VERSION, message.subject)
    except Unusable:
        return False
    return not plan.unfinished and not plan.held
