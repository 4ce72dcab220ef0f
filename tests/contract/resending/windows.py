"""A deduplication window cut to nearly nothing, so that no test relies on it."""

from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.resending.settled_events import ONE
from tests.support.installation import install

LEASE_S = 0.15
WINDOW_NS = 100_000_000
"""The least that nats-server takes; less than a lease, so that it is over when the lock changes hands."""


async def shorten_window(js: JetStream, stream: str) -> None:
    """Cut the window of a stream."""
    info = await js.stream_info(stream)
    assert info is not None
    await js.stream_update(info.config | {"duplicate_window": WINDOW_NS})


async def install_with_short_window(js: JetStream, prefix: str) -> Names:
    """An installation whose deliveries have such a window."""
    names = await install(js, prefix)
    await shorten_window(js, names.deliveries)
    return names


async def install_with_receiver(js: JetStream, prefix: str, *others: str) -> Names:
    """An installation with such a window, the receiver ONE, and others."""
    names = await install_with_short_window(js, prefix)
    for receiver in (ONE, *others):
        await StoredConfigurations(js, names).put(receiver, b'{"url": "https://example.com/"}')
    return names
