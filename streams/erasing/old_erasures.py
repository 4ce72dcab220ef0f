"""Drops the records of old erasures: each erased event has one."""

from actors.errors import Unusable
from streams.buckets.expired_keys import drop_expired
from streams.erasing.erasures import marked
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream

KEPT_FOR_S = 90 * 86_400.0
"""Time for which the record of an erasure is kept after its end."""


async def drop_old_erasures(js: JetStream, names: Names, wall: float, after: int = 0) -> int | None:
    """Drop those of the next records that were done more than `KEPT_FOR_S` before `wall`: `drop_expired`."""

    def is_expired(message: StoredMessage) -> bool:
        return _was_done_before(message, wall - KEPT_FOR_S)

    return await drop_expired(js, names.actors, names.actor_keys.erasures, is_expired, after)


def _was_done_before(message: StoredMessage, at: float) -> bool:
    """True if the erasure was done before `at`; False also if its record cannot be read.

    The eraser reports such a record.
    """
    try:
        _, erasure = marked(message)
    except Unusable:
        return False
    return erasure is not None and erasure.done_at is not None and erasure.done_at < at
