"""`angarium fleet`: the nodes and the shards; empties a node for maintenance."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import options
from angarium.cli.invocation.perform import perform
from angarium.terminal import output
from angarium.terminal.progress import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from angarium.operations.installation.fleet import SeenNode, SeenShard

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
    for problem in seen.problems:
        output.note(f"note: {output.visible(problem)}")


def node_rows(nodes: "Sequence[SeenNode]") -> list[tuple[object, ...]]:
    """The rows of the table of nodes."""
    return [
        (
            each.node, each.version, _second(each.started_at), each.shards_owned, each.shards_wanted,
            each.draining,
        )
        for each in nodes
    ]  # fmt: skip


def shard_rows(shards: "Sequence[SeenShard]") -> list[tuple[object, ...]]:
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


@fleet.command(short_help="Empty a node for maintenance.")
@click.argument("node")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION)
def drain(node: str, as_json: bool, **given: Any) -> None:
    """Let the NODE hand all its shards over to the others, and wait until it owns none.

    It lives on without shards until angarium fleet resume, or until it is started again. Ctrl-C only ends the
    waiting.
    """
    from msgspec import to_builtins

    from angarium.operations.installation.drain import drain as empty

    begun = False

    def asked() -> None:
        nonlocal begun
        begun = True

    def interrupted() -> str:
        return f"{node} stays drained; angarium fleet resume {node} ends that" if begun else ""

    settings = options.settings_of(given)
    with progress(f"shards of {node} handed over") as shown:
        done = perform(
            settings, lambda access: empty(access, node, asked=asked, progress=shown), interrupted=interrupted
        )
    if as_json:
        output.say_json(to_builtins(done))
    else:
        output.say(f"{node} owns no shard; angarium fleet resume {node} ends that")


@fleet.command(short_help="Let a drained node own shards again.")
@click.argument("node")
@options.settings_flags(*options.CONNECTION)
def resume(node: str, **given: Any) -> None:
    """End the drain of the NODE, which then gets its share of the shards again."""
    from angarium.operations.installation.drain import resume as end_drain

    perform(options.settings_of(given), lambda access: end_drain(access, node))
    output.say(f"{node} takes part again")
