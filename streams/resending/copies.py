"""Copies of events in the deliveries stream: their headers, and a search for those that were sent."""

from collections.abc import AsyncIterator, Mapping

from streams.installation.topology import Names
from streams.nats.answers import StoredMessage, StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_for_command
from streams.nats.wire_names import (
    CONTENT_TYPE,
    EVENT_AGAIN,
    EVENT_ID,
    EVENT_REGION,
    EVENT_TYPE,
    HEADERS_TOO_LARGE,
    MESSAGE_ID,
    MESSAGE_TOO_LARGE,
    TRACEPARENT,
    TRACESTATE,
)

TOO_LARGE_CODES = (MESSAGE_TOO_LARGE, HEADERS_TOO_LARGE)
"""The codes if the stream accepts no event of this size."""
PAGE_MAX = 256
PAGE_BYTES_MAX = 1 << 20

_KEPT = (EVENT_ID, EVENT_TYPE, EVENT_REGION, CONTENT_TYPE, TRACEPARENT, TRACESTATE)


def copied_headers(headers: Mapping[str, str], again: str, message_id: str) -> dict[str, str]:
    """The headers of an event that is sent again, which receivers recognise by `angarium-again`."""
    kept = {name: headers[name] for name in _KEPT if name in headers}
    return kept | {EVENT_AGAIN: again, MESSAGE_ID: message_id}


async def pages_between(
    js: JetStream, names: Names, subject: str, after: int, until: int
) -> AsyncIterator[list[StoredMessage]]:
    """The deliveries of a subject between two positions, in pages; the leader helps if a replica lags."""
    while after < until:
        page = await retry_for_command(
            js.read, names.deliveries, subject, after + 1, PAGE_MAX, PAGE_BYTES_MAX
        )
        messages = page.messages
        if not messages:
            message = await retry_for_command(js.next_message, names.deliveries, subject, after + 1)
            messages = [] if message is None else [message]
        found = [each for each in messages if each.position <= until]
        if not found:
            return
        yield found
        after = found[-1].position


async def deliveries_info(js: JetStream, names: Names) -> StreamInfo:
    """The state of the deliveries stream, from its leader."""
    return await retry_for_command(js.existing_stream, names.deliveries)
