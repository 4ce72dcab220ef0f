"""Drops the keys of a bucket that have expired, a limited number in a call: the node has other work."""

from collections.abc import Callable

from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream

CHECKED_MAX = 256
"""Keys that are checked in one call."""


async def drop_expired(
    js: JetStream, bucket: str, keys: str, is_expired: Callable[[StoredMessage], bool], after: int
) -> int | None:
    """Drop the expired ones of the next keys that match `keys`.

    Returns the position to continue after, and None at the end. A value that is stored meanwhile stays, and
    its writer expects the value that was there before. Raises `Unavailable` and `ApiError`.
    """
    for _ in range(CHECKED_MAX):
        message = await js.next_message(bucket, keys, after + 1)
        if message is None:
            return None
        after = message.position
        if is_expired(message):
            await js.purge_subject(bucket, message.subject, after)
    return after
