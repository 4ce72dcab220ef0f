"""The moment from which a receiver exists: earlier events are not routed to it."""

import pytest

from actors.machine.bucket import CLOCK_SKEW_S
from streams.buckets.known_configurations import KnownConfigurations
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Names
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from tests.support.waiting import until

RECEIVER = "acme.billing"
RAW = b'{"url": "https://example.com/hook"}'
EDITED = b'{"url": "https://example.com/hook", "timeout_s": 3}'


async def put_elsewhere(js: JetStream, names: Names, value: bytes, **headers: str) -> None:
    """Straight into the bucket, as the nats CLI does."""
    assert isinstance(await js.publish(names.receiver(RECEIVER), value, headers), Stored)


@pytest.mark.parametrize("following", [True, False])
async def test_the_time_since_which_a_receiver_exists_is_known(
    js: JetStream, names: Names, following: bool
) -> None:
    """The receiver exists since its first put, or its first put after a removal; edits do not change that."""
    node, tool = KnownConfigurations(js, names), StoredConfigurations(js, names)
    if following:
        await node.start()
    await tool.put(RECEIVER, RAW)
    await tool.delete(RECEIVER)
    first = await tool.put(RECEIVER, RAW)
    assert isinstance(first, Stored)
    (message,) = (await js.read(names.receivers, names.receiver(RECEIVER), first.position)).messages
    await tool.set_paused(RECEIVER, True)
    last = await tool.put(RECEIVER, EDITED)
    assert isinstance(last, Stored)
    if not following:
        await node.start()
    await until(lambda: node.applied >= last.position)
    earliest, both = message.stored_at - CLOCK_SKEW_S, (RECEIVER, "acme.unheard")
    assert node.existing_at(earliest - 0.01, both) == ("acme.unheard",)
    assert node.existing_at(earliest + 0.01, both) == both
    await node.stop()


async def test_a_receiver_of_other_clients_exists_since_its_removal_or_always(
    js: JetStream, names: Names
) -> None:
    node = KnownConfigurations(js, names)
    await put_elsewhere(js, names, RAW)
    await node.confirm(RECEIVER)
    assert node.existing_at(0.0, (RECEIVER,)) == (RECEIVER,)
    await put_elsewhere(js, names, b"", **{"KV-Operation": "DEL"})
    await put_elsewhere(js, names, RAW)
    await put_elsewhere(js, names, EDITED)
    await node.confirm(RECEIVER)
    removal = node.removal(RECEIVER)
    assert removal is not None
    assert node.existing_at(removal.at - CLOCK_SKEW_S - 0.01, (RECEIVER,)) == ()
    assert node.existing_at(removal.at - CLOCK_SKEW_S + 0.01, (RECEIVER,)) == (RECEIVER,)
