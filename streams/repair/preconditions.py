"""The conditions of a repair: our user may write it, and the nodes that hold the shards are dead."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from streams.fleet import members
from streams.fleet.lease import LEASE_MARGIN_S
from streams.fleet.members import Member
from streams.installation.topology import Names
from streams.journal.claim import Owner, read_owner
from streams.nats.answers import Forbidden
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered
from streams.nats.wire_names import EXPECTED
from streams.repair.damage import NOT_COMPLETE
from streams.versions import read_versioned

UNKNOWN_TTL_S = 10.0
"""Time for which a node without a key is watched: by default no node has a longer TTL."""
_member = msgspec.json.Decoder(Member)


async def check_rights(js: JetStream, names: Names) -> None:
    """Raise `NotPermitted` if our user lacks a permission for the repair. Nothing is stored."""
    for subject in (names.actor_keys.refusal(0), names.journal_of(0)):
        answer = await js.publish(subject, b"", {EXPECTED: str(NOT_COMPLETE.position)})
        if isinstance(answer, Forbidden):
            raise NotPermitted(answer.why)


async def dead_holders(js: JetStream, names: Names, shards: Sequence[int]) -> frozenset[str]:
    """The nodes that hold one of these shards and show no heartbeat for a TTL plus half a second."""
    owners = [(await read_owner(js, names, each))[0] for each in shards]
    holders = {each.node for each in owners if each is not None and each.released is None}
    before = {node: await _heartbeat(js, names, node) for node in holders}
    if not holders:
        return frozenset()
    await asyncio.sleep(max(ttl_s for _, ttl_s in before.values()) + LEASE_MARGIN_S)
    return frozenset([node for node in holders if (await _heartbeat(js, names, node))[0] == before[node][0]])


def takes_over_from(dead: frozenset[str]) -> Callable[[Owner | None], bool]:
    """A function that returns True if a shard may be claimed: it has no owner, or a dead one."""
    return lambda owner: owner is None or owner.released is not None or owner.node in dead


async def _heartbeat(js: JetStream, names: Names, node: str) -> tuple[int, float]:
    """The revision of a node's key (0 if there is none), and how long its heartbeat is valid."""
    message = await retry_until_answered(lambda: js.last_message(names.nodes, names.node(node)))
    if message is None or not message.data:
        return 0, UNKNOWN_TTL_S
    member = read_versioned(_member, message.data, members.VERSION, message.subject)
    return message.position, member.ttl_s or UNKNOWN_TTL_S
