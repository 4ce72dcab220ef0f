"""Drops the records of old erasures: each erased event has one."""

from actors.errors import Unusable
from streams.erasing.erasures import marked
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream

KEPT_FOR_S = 90 * 86_400.0
"""Time for which the record of an erasure is kept after its end."""
LOOKED_AT_MAX = 256
"""Records of one call: the node has other work."""


async def drop_old_erasures(js: JetStream, names: Names, wall: float, after: int = 0) -> int | None:
    """Drop those of the next records that were done more than `KEPT_FOR_S` before `wall`.

    Returns the position to continue after, and None at the end. A request that is stored meanwhile stays.
    Raises `Unavailable` and `ApiError`.
    """
    for _ in range(LOOKED_AT_MAX):
        message = await js.next_message(names.actors, names.actor_keys.erasures, after + 1)
        if message is None:
            return None
        after = message.sequence
        if _was_done_before(message, wall - KEPT_FOR_S):
            await js.purge_subject(names.actors, message.subject, after)
    return after


def _was_done_before(message: StoredMessage, at: float) -> bool:
    """True if it was; False also if it cannot be read, which the eraser reports."""
    try:
        _, erasure = marked(message)
    except Unusable:
        return False
    return erasure is not None and erasure.done_at is not None and erasure.done_at < at
