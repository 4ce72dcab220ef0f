"""Starts a node that has very many configurations to read: alone, it delivers before it knows all of them."""

import asyncio
import logging
from collections.abc import Callable

from actors.errors import Unavailable
from streams.buckets.known_configurations import KnownConfigurations
from streams.installation.topology import Names
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream

CONFIGURATIONS_PATIENCE_S = 2.0
"""Time for which shards wait for all configurations before a node that is alone claims them without."""

log = logging.getLogger(__name__)


async def read_configurations(
    configurations: KnownConfigurations, on_complete: Callable[[], None] | None
) -> None:
    """Read all configurations that exist now, then call `on_complete`."""
    await configurations.start()
    if on_complete is not None:
        on_complete()


async def until_complete_or_alone(
    reading_configurations: asyncio.Task[None],
    js: JetStream,
    names: Names,
    node: str,
    *,
    patience_s: float = CONFIGURATIONS_PATIENCE_S,
) -> None:
    """Return when all configurations are known, or when no other node lives that could own the shards.

    Until then a shard delivers direct sends to the receivers that are known. Events of other receivers, and
    routing, wait until this node has caught up with the leader of the bucket. If other nodes live, they keep
    the shards, so nothing waits.
    """
    while not reading_configurations.done():
        await asyncio.wait((reading_configurations,), timeout=patience_s)
        if not reading_configurations.done() and await _is_alone(js, names, node):
            log.info("node.started_early", extra={"node": node, "why": "no other node lives"})
            return
    await reading_configurations


async def _is_alone(js: JetStream, names: Names, node: str) -> bool:
    """True if the leader has the heartbeat of no other node, readable or not; False if it does not answer."""
    position = 0
    try:
        while (found := await js.next_message(names.nodes, names.node("*"), position + 1)) is not None:
            if found.data and names.node_of_heartbeat(found.subject) != node:
                return False
            position = found.position
    except (Unavailable, ApiError):
        return False
    return True
