"""Deletes messages that were read before, and never a different one at the same position.

A single server that loses power loses the tail of a stream, and gives its positions to new messages, of any
tenant. So a deletion is never repeated blindly, nor sent long after the message was read: the message there
is compared right before each request, and the request goes over the connection that the comparison used.
"""

from collections.abc import Callable

from actors.errors import Unavailable
from streams.lost_tails.marks import Mark
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream


async def delete_known(
    js: JetStream, stream: str, mark: Mark, wanted: Callable[[StoredMessage], bool] = lambda _: True
) -> bool:
    """Delete the message at the mark; False if it is gone, also if another one has taken its position.

    `wanted` judges the message as well. Raises `Unavailable` and `ApiError`; then call it again.
    """
    changes = js.connection_changes
    message = await js.message(stream, mark.position)
    if message is None or mark.stored_at not in (0.0, message.stored_at) or not wanted(message):
        return False
    if js.connection_changes != changes:
        raise Unavailable(f"{stream}: the connection was lost after the message at {mark.position} was read")
    return await js.delete(stream, mark.position)
