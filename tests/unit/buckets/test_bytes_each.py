"""The bytes of memory that a node needs for each configured receiver."""

import base64
import tracemalloc
from unittest.mock import Mock

import msgspec

from streams.buckets.known_configurations import KnownConfigurations, subscriptions_of
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import SINCE, SINCE_ITSELF

COUNT = 20_000
BYTES_EACH_MAX = 830
"""805 are taken, 50 of them by the members for filters, regions and transforms.

A million receivers may take 1.2 GB, with the gaps that the allocator leaves.
"""


def configuration(names: Names, number: int) -> StoredMessage:
    """A receiver with a URL and a secret of its own, one of 200 of its tenant, put by our own client."""
    secret = base64.b64encode(number.to_bytes(24, "big")).decode()
    return StoredMessage(
        subject=names.receiver(f"tenant-{number // 200}.receiver-{number}"),
        position=number + 1,
        stored_at=1.7e9 + number,
        headers={SINCE: SINCE_ITSELF},
        data=msgspec.json.encode({"url": f"https://r{number}.example/hook", "secrets": [f"whsec_{secret}"]}),
    )


def test_a_configured_receiver_takes_few_bytes_with_its_subscription() -> None:
    names = Names()
    configurations = KnownConfigurations(Mock(spec=JetStream), names)
    subscriptions = subscriptions_of(configurations)
    # What is created once, such as caches, does not count.
    configurations._follow(configuration(names, COUNT))
    tracemalloc.start(1)
    try:
        for number in range(COUNT):
            configurations._follow(configuration(names, number))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(subscriptions.match("tenant-7", "order.created")) == 200
    assert taken / COUNT < BYTES_EACH_MAX
