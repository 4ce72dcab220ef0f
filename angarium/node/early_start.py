"""Starts a node that has very many configurations to read: alone, it delivers before it knows all of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from actors.errors import Unavailable
from streams.buckets.receivers import Receivers
from streams.fleet.members import Member
from streams.fleet.seen_members import seen_members
from streams.installation.topology import Names
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream

CONFIGURATIONS_PATIENCE_S = 2.0
"""Time for which shards wait for all configurations before a node that is alone claims them all the same."""

Look = Callable[[JetStream, Names], Awaitable[tuple[list[Member], list[str]]]]

log = logging.getLogger(__name__)


async def read_configurations(receivers: Receivers, on_complete: Callable[[], None] | None) -> None:
    """Read all configurations that exist now, then call `on_complete`."""
    await receivers.start()
    if on_complete is not None:
        on_complete()


async def until_complete_or_alone(
    reading_configurations: asyncio.Task[None],
    js: JetStream,
    names: Names,
    node: str,
    *,
    patience_s: float = CONFIGURATIONS_PATIENCE_S,
    look: Look = seen_members,
) -> None:
    """Return when all configurations are known, or when no other node lives that could own the shards.

    Until then a shard delivers direct sends to the receivers that are known. Events of other receivers, and
    routing, wait until this node has caught up with the leader of the bucket. If other nodes live, they keep
    the shards, so nothing waits.
    """
    while not reading_configurations.done():
        await asyncio.wait((reading_configurations,), timeout=patience_s)
        if not reading_configurations.done() and await _is_alone(js, names, node, look):
            log.info("node.started_early", extra={"node": node, "why": "no other node lives"})
            return
    await reading_configurations


async def _is_alone(js: JetStream, names: Names, node: str, look: Look) -> bool:
    """True if no other node lives; False if one does, or if that is not known."""
    try:
        members, _ = await look(js, names)
    except (Unavailable, ApiError):
        return False
    return all(each.node == node for each in members)
