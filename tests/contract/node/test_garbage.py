"""Garbage collection in a node: which objects every collection skips, and which none does."""

import gc
from collections.abc import Iterator

import pytest

from actors.configuration.policy import Policy
from actors.runtime.actor import Actor
from angarium.node.app import freeze_existing_objects, joined_node
from streams.clock import SystemTime
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.contract.node.senders import NobodySends
from tests.support.installation import install, node_settings

RECEIVER = "acme.billing"
CONFIGURATION = b'{"url": "https://kept-for-good.example", "headers": {"x-kept": "yes"}}'


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


async def test_configurations_are_never_searched_for_garbage_and_actors_are(
    wire: Wire, js: JetStream, prefix: str
) -> None:
    """An actor leaves memory: in a frozen cycle it would stay there."""
    names = await install(js, prefix)
    await js.publish(names.receiver(RECEIVER), CONFIGURATION)
    async with joined_node(
        wire, node_settings(names), SystemTime(), NobodySends(), on_complete=freeze_existing_objects
    ) as node:
        await node.until_ready()
        policy = node.context.configurations.policy(RECEIVER)
        host = node.host_of(RECEIVER)
        assert isinstance(policy, Policy)
        assert host is not None
        actor = host.residents.activate(RECEIVER)
        searched = gc.get_objects()
        assert not any(each is policy or each is policy.headers for each in searched)
        assert any(isinstance(each, Actor) and each is actor for each in searched)
