"""`angarium repair`: accepts a loss that no backup can restore, so that refused shards run again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from actors.times_as_text import instant_text
from angarium.cli.invocation import options
from angarium.cli.invocation.perform import perform
from angarium.terminal import output
from angarium.terminal.run import confirm

if TYPE_CHECKING:
    from angarium.operations.installation.repair import RepairedShard
    from streams.lost_tails.marks import Mark
    from streams.repair.damage import Damage, LostTail


@click.command(short_help="Accept that a stream lost its end, and run its shards again.")
@click.option(
    "--accept-loss",
    "which",
    metavar="SHARD[,…]|all",
    required=True,
    multiple=True,
    help="Refused shards (repeatable); all: every one that angarium doctor shows.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION, *options.INSTALLATION)
def repair(which: tuple[str, ...], yes: bool, as_json: bool, **given: Any) -> None:
    """Accept that a stream lost its end, and let its shards run again. Shows the loss, and asks.

    Receivers get the remaining events and those published since; delivered events may be sent again. Their
    numbers continue after a gap of 512 or more. You can interrupt it and run it again. It needs a node's
    permissions.
    """
    from angarium.operations.installation.repair import accept_loss

    def agreed(damages: "Sequence[Damage]") -> bool:
        for damage in damages:
            for line in lines(damage):
                output.note(line)
        if yes:
            return True
        if not output.can_ask():
            raise click.UsageError("the above would be accepted as lost; confirm with --yes")
        return confirm("accept this loss")

    settings = options.settings_of(given)
    shards = shards_of(which, settings.shards)
    done = perform(settings, lambda access: accept_loss(access, shards, agreed))
    if as_json:
        output.say_json([document(each) for each in done.repaired])
    else:
        for line in summary(done.repaired):
            output.say(line)
    if done.failures:
        raise click.ClickException("; ".join(each.sentence for each in done.failures))


def shards_of(which: Sequence[str], count: int) -> tuple[int, ...] | None:
    """The shards that were named, None for all that are refused. Raises click.UsageError."""
    named = [part.strip() for text in which for part in text.split(",")]
    if "all" in named:
        if len(named) > 1:
            raise click.UsageError("--accept-loss: give shards, or all")
        return None
    for text in named:
        if not text.isdecimal() or int(text) >= count:
            raise click.UsageError(f"--accept-loss: {text!r} is not a shard; shards are 0 to {count - 1}")
    return tuple(dict.fromkeys(map(int, named)))


def lines(damage: "Damage") -> list[str]:
    """The loss that would be accepted, in sentences."""
    sentences = [
        f"shard {damage.shard}: {gap.stream} has lost everything after {_mark_text(gap.kept)}, up to at "
        f"least {_mark_text(gap.known)}; {damage.receivers} receivers"
        for gap in damage.gaps
    ]
    sentences += [
        f"shard {damage.shard}: {name} was recreated or restored, and is accepted from now on"
        for name in damage.recreated
    ]
    if sentences:
        return sentences
    if damage.missing and not damage.cut_off:
        return [f"shard {damage.shard}: it is refused because of a message that is purged now"]
    return [f"shard {damage.shard}: a repair was interrupted"]


def _mark_text(mark: "Mark") -> str:
    when = f" (stored at {instant_text(mark.stored_at)})" if mark.stored_at else ""
    return f"message {mark.position}{when}" if mark.position else "its beginning"


def document(repaired: "RepairedShard") -> dict[str, Any]:
    """The loss and the result, as `--json` shows it."""
    damage = repaired.damage
    return {
        "shard": damage.shard,
        "lost": [_lost(gap) for gap in damage.gaps],
        "recreated": list(damage.recreated),
        "receivers": damage.receivers,
        "brought_back": repaired.brought_back,
    }


def _lost(gap: "LostTail") -> dict[str, Any]:
    return {
        "stream": gap.stream,
        "after": gap.kept.position,
        "after_at": instant_text(gap.kept.stored_at) if gap.kept.stored_at else None,
        "to": gap.known.position,
        "to_at": instant_text(gap.known.stored_at) if gap.known.stored_at else None,
    }


def summary(done: "Sequence[RepairedShard]") -> list[str]:
    """The result of a repair for people."""
    sentences = [
        f"shard {each.damage.shard} is repaired; {each.brought_back} receivers were set back" for each in done
    ]
    return sentences or ["nothing was repaired"]
