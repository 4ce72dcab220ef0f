"""Empties a node for maintenance, and lets it own shards again."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.failures import OperationError, operation
from angarium.operations.installation.fleet import live_nodes
from angarium.operations.receivers.control_requests.ask import ask_subject
from streams.control_requests.node_requests import LAST_NODE_CODE, OLDER_NODES_CODE
from streams.control_requests.requests import NODES
from streams.fleet.members import Member
from streams.fleet.placement import PLACEMENT_VERSION, can_drain
from streams.observation.installation_status import owners, seen_members
from streams.observation.receivers_seen import shard_count

LOOK_EVERY_S = 0.25


class Drained(Struct, frozen=True, kw_only=True):
    """A node that owns nothing, and how many shards it has handed over since it was asked to."""

    node: str
    handed_over: int


@operation
async def drain(
    access: Access,
    node: str,
    *,
    asked: Callable[[], None] = lambda: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Drained:
    """Let a node hand over all its shards, and return once it owns none.

    `asked` is called when the drain is in force, `progress` with the shards handed over, and their total.
    """
    members, _ = await seen_members(access.js, access.names)
    _live(members, node)
    if older := [each for each in members if each.placement < PLACEMENT_VERSION]:
        which = ", ".join(f"{each.node} ({each.version})" for each in older)
        raise OperationError(
            "refused", f"not every live node knows how to leave out a drained one: {which}", OLDER_NODES_CODE,
            remedy="; upgrade these first, or stop the node with SIGTERM",
        )  # fmt: skip
    await _ask(access, "drain", node)
    asked()
    count = await shard_count(access.js, access.names)
    total = 0
    while True:
        found = await owners(access.js, access.names, count)
        left = sum(owner is not None and owner.node == node for owner in found)
        total = max(total, left)
        progress(total - left, total)
        if not left:
            return Drained(node=node, handed_over=total)
        _check_draining((await seen_members(access.js, access.names))[0], node)
        await asyncio.sleep(LOOK_EVERY_S)


@operation
async def resume(access: Access, node: str) -> None:
    """End the drain of a node, which then gets its share again."""
    members, _ = await seen_members(access.js, access.names)
    if _live(members, node).placement < PLACEMENT_VERSION:
        return  # It knows no drain, so none is in force.
    await _ask(access, "resume", node)


def _live(members: Sequence[Member], node: str) -> Member:
    for each in members:
        if each.node == node:
            return each
    names = ", ".join(each.node for each in members) or "none"
    raise OperationError(
        "not_found", f"there is no live node {node}; the live ones: {names}",
        remedy="; see angarium fleet",
    )  # fmt: skip


def _check_draining(members: Sequence[Member], node: str) -> None:
    """Raises `OperationError` if the node does not hand its shards over any more."""
    found = next((each for each in members if each.node == node), None)
    if found is None:
        raise OperationError(
            "refused", f"{node} died before it had handed over everything",
            remedy="; the others take its shards, see angarium fleet",
        )  # fmt: skip
    if not found.draining:
        raise OperationError(
            "refused", f"{node} was resumed, or started again",
            remedy=f"; ask again: angarium fleet drain {node}",
        )  # fmt: skip
    if not can_drain(live_nodes(members)) or all(each.draining for each in members):
        raise OperationError(
            "refused", f"no other live node can take the shards of {node} any more, so it keeps them",
            remedy="; it hands them over as soon as one can, see angarium fleet",
        )  # fmt: skip


async def _ask(access: Access, verb: str, node: str) -> None:
    silence = OperationError(
        "unanswered", f"{node} did not answer", remedy="; see its log, and angarium doctor"
    )
    try:
        await ask_subject(access, access.names.control(verb, NODES, node), silence=silence)
    except OperationError as error:
        if error.code != LAST_NODE_CODE:
            raise
        remedy = "; start another one first (angarium node)"
        raise OperationError("refused", str(error), error.code, remedy=remedy) from None
