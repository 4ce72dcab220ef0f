"""Reports of invalid configurations: one line each, even if a process follows the bucket twice."""

import logging

import pytest

from streams.buckets.known_configurations import KnownConfigurations
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.support.waiting import until

RECEIVER = "acme.billing"


async def test_the_api_says_nothing_of_configurations_that_nodes_report(
    js: JetStream, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    """`angarium dev` runs both in one process."""
    node, api = KnownConfigurations(js, names), KnownConfigurations(js, names, logs=False)
    await node.start()
    await api.start()
    for raw in (b'{"url": "ftp://x"}', b'{"url": "https://example.com/", "unheard_of": 1}'):
        await js.publish(names.receiver(RECEIVER), raw)
    await until(lambda: node.policy(RECEIVER) is not None and api.policy(RECEIVER) is not None)
    await node.stop()
    await api.stop()
    said = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert said == ["receiver.invalid", "receiver.doubtful"]
