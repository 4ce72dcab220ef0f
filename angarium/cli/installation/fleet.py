"""`angarium fleet`: the nodes and the shards; empties nodes for maintenance."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import perform
from angarium.quantities import count_text
from angarium.terminal import output
from angarium.terminal.progress import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from angarium.operations.installation.fleet import FleetStatus, NodeStatus, ShardStatus

NODE_HEADINGS = ("node", "version", "since", "shards", "should own", "draining")
SHARD_HEADINGS = ("shard", "node", "since", "waiting", "oldest", "refused")
HIDDEN_NOTE = "NATS does not permit this user to read what waits; an operator may"


@click.group(short_help="Show nodes and shards; empty a node.", invoke_without_command=True)
@click.option("--shards", "by_shard", is_flag=True, help="Show shards: owner, lag, why one is refused.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@options.settings_flags(*options.CONNECTION)
@click.pass_context
def fleet(context: click.Context, /, by_shard: bool, as_json: bool, **given: Any) -> None:
    """Show the live nodes: the shards that each owns, and the number that it should own.

    With --shards: the owner of each shard, the events that it has not settled, and when the oldest was
    stored. Events that wait for a receiver (throttled, offline, paused) do not count: see angarium top.
    """
    if context.invoked_subcommand is not None:
        return
    from msgspec import to_builtins

    from angarium.operations.installation import fleet as operations

    settings = options.settings_of(given)
    if by_shard:
        shards = perform(settings, operations.shards_and_refusals)
        if as_json:
            output.say_json(to_builtins(shards))
        else:
            output.say_table(SHARD_HEADINGS, shard_rows(shards), cut=("refused",))
            if any(each.waiting is None for each in shards):
                output.note(f"note: {HIDDEN_NOTE}")
        return
    seen = perform(settings, operations.nodes)
    if as_json:
        output.say_json(to_builtins(seen))
        return
    output.say_table(NODE_HEADINGS, node_rows(seen.nodes), cut=("version",))
    for each in seen.nodes:
        if each.outage:
            output.note(f"note: {outage_text(each.node)}")
    if seen.shards_unowned:
        output.note(f"note: {unowned_text(seen)}")
    for problem in seen.problems:
        output.note(f"note: {output.visible(problem)}")


def node_rows(nodes: "Sequence[NodeStatus]") -> list[tuple[object, ...]]:
    """The rows of the table of nodes."""
    return [
        (
            each.node, each.version, _second(each.started_at), each.shards_owned, each.shards_wanted,
            each.draining,
        )
        for each in nodes
    ]  # fmt: skip


def outage_text(node: str) -> str:
    """The sentence that a node can connect to no host."""
    return f"{output.visible(node)} can connect to no host, and makes only probes: check its network and DNS"


def unowned_text(seen: "FleetStatus") -> str:
    """The sentence that no live node owns some shards, with the remedy."""
    shards = count_text(seen.shards_unowned, "shard")
    have = "has" if seen.shards_unowned == 1 else "have"
    none = f"had no live node since {_second(seen.unowned_since)}" if seen.unowned_since else "no live node"
    remedy = "if this lasts, see angarium doctor" if seen.nodes else "start one (angarium node)"
    return f"{shards} {have} {none}: {remedy}"


def shard_rows(shards: "Sequence[ShardStatus]") -> list[tuple[object, ...]]:
    """The rows of the table of shards; a dead owner is marked."""
    return [
        (
            each.shard, f"{each.node} (dead)" if each.node and not each.alive else each.node,
            _second(each.claimed_at), each.waiting, _second(each.oldest_at), each.refused,
        )
        for each in shards
    ]  # fmt: skip


def _second(at: datetime | None) -> str | None:
    return None if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")


@fleet.command(short_help="Empty nodes for maintenance.")
@names.nodes("nodes")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION)
def drain(nodes: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Let each NODE hand all its shards over to the others, and wait until it owns none.

    The name that was given to angarium node --workers stands for all its workers. A node keeps running
    without shards until angarium fleet resume, or until it is started again. Ctrl-C only ends the waiting.
    """
    from msgspec import to_builtins

    from angarium.operations.installation.drain import drain as empty

    drained = list[str]()

    def interrupted() -> str:
        which = ", ".join(drained)
        stay = "stays" if len(drained) == 1 else "stay"
        return f"{which} {stay} drained; to undo: {_resume_command(*drained)}" if drained else ""

    settings = options.settings_of(given)
    with progress(f"shards of {', '.join(nodes)} handed over") as shown:
        done = perform(
            settings, lambda access: empty(access, nodes, on_draining=drained.append, progress=shown),
            interrupted=interrupted,
        )  # fmt: skip
    if as_json:
        output.say_json({"nodes": to_builtins(done)})
        return
    for each in done:
        output.say(f"{each.node} is drained and owns no shards; to undo: {_resume_command(each.node)}")


@fleet.command(short_help="Let drained nodes own shards again.")
@names.nodes("nodes")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION)
def resume(nodes: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """End the drain of each NODE, which then gets its share of the shards again.

    The name that was given to angarium node --workers stands for all its workers.
    """
    from msgspec import to_builtins

    from angarium.operations.installation.drain import resume as end_drain

    done = perform(options.settings_of(given), lambda access: end_drain(access, nodes))
    if as_json:
        output.say_json({"nodes": to_builtins(done)})
        return
    for each in done:
        output.say(f"{each.node} takes part again")


def _resume_command(*nodes: str) -> str:
    return f"angarium fleet resume {' '.join(nodes)}"
