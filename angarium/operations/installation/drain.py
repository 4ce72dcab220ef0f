"""Empties nodes for maintenance, and lets them own shards again."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from angarium.access import Access
from angarium.operations.control_requests.ask import ask_subject
from angarium.operations.failures import OperationError, operation
from angarium.operations.installation.fleet import live_nodes
from angarium.settings import is_worker_of
from streams.control_requests.node_requests import LAST_NODE_CODE, OLDER_NODES_CODE
from streams.control_requests.requests import NODES
from streams.fleet.live_members import live_members
from streams.fleet.members import Member
from streams.fleet.placement import PLACEMENT_VERSION, can_drain
from streams.observation.installation_status import owners
from streams.observation.receiver_snapshots import shard_count

CHECK_EVERY_S = 0.25
START_ANOTHER = "; start another one first (angarium node)"


class DrainedNode(Struct, frozen=True, kw_only=True):
    """A node that owns nothing, and how many shards it has handed over since it was asked to."""

    node: str
    handed_over: int


class ResumedNode(Struct, frozen=True, kw_only=True):
    """A node that gets its share again."""

    node: str


@operation
async def drain(
    access: Access,
    names: Sequence[str],
    *,
    on_draining: Callable[[str], None] = lambda node: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[DrainedNode]:
    """Let nodes hand over all their shards, and return once they own none.

    `names`: nodes, or those whose workers are nodes. All are asked before the first is waited for, so that
    none gets the shards of another. `on_draining` is called when the drain of a node is in force, `progress`
    with the shards handed over, and their total.
    """
    members, _ = await live_members(access.js, access.names)
    nodes = _named_nodes(members, names)
    if older := [each for each in members if each.placement < PLACEMENT_VERSION]:
        which = ", ".join(f"{each.node} ({each.version})" for each in older)
        raise OperationError(
            "refused", f"not every live node knows how to leave out a drained one: {which}", OLDER_NODES_CODE,
            remedy="; upgrade these first, or stop the node with SIGTERM",
        )  # fmt: skip
    if all(each.draining or each.node in nodes for each in members):
        text = f"no other live node would take the shards of {' and '.join(nodes)}"
        raise OperationError("refused", text, LAST_NODE_CODE, remedy=START_ANOTHER)
    for number, node in enumerate(nodes):
        try:
            await _ask(access, "drain", node)
        except OperationError as error:
            undo = f"; to undo what is drained already: angarium fleet resume {' '.join(nodes[:number])}"
            remedy = error.remedy + (undo if number else "")
            raise OperationError(error.kind, str(error), error.code, remedy=remedy) from None
        on_draining(node)
    count = await shard_count(access.js, access.names)
    totals = dict.fromkeys(nodes, 0)
    while True:
        found = await owners(access.js, access.names, count)
        left = Counter(owner.node for owner in found if owner is not None and owner.node in totals)
        totals = {node: max(total, left[node]) for node, total in totals.items()}
        progress(sum(totals.values()) - left.total(), sum(totals.values()))
        if not left:
            return [DrainedNode(node=node, handed_over=total) for node, total in totals.items()]
        members, _ = await live_members(access.js, access.names)
        for node in left:
            _check_draining(members, node)
        await asyncio.sleep(CHECK_EVERY_S)


@operation
async def resume(access: Access, names: Sequence[str]) -> list[ResumedNode]:
    """End the drain of nodes, which then get their shares again; `names` as for `drain`."""
    members, _ = await live_members(access.js, access.names)
    nodes = _named_nodes(members, names)
    for each in members:
        # A node of an older version knows no drain, so none is in force.
        if each.node in nodes and each.placement >= PLACEMENT_VERSION:
            await _ask(access, "resume", each.node)
    return [ResumedNode(node=node) for node in nodes]


def _named_nodes(members: Sequence[Member], names: Sequence[str]) -> list[str]:
    """The live nodes with these names; the name that was given to a supervisor means all its workers."""
    live = [each.node for each in members]
    named: dict[str, None] = {}
    for name in names:
        found = [name] if name in live else [node for node in live if is_worker_of(node, name)]
        if not found:
            raise OperationError(
                "not_found", f"there is no live node {name}; the live ones: {', '.join(live) or 'none'}",
                remedy="; see angarium fleet",
            )  # fmt: skip
        named |= dict.fromkeys(found)
    return list(named)


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
        raise OperationError("refused", str(error), error.code, remedy=START_ANOTHER) from None
