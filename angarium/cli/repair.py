"""`angarium repair`: accepts a loss that no backup makes up for, so that refused shards run again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from angarium.cli import options
from angarium.cli.perform import perform
from angarium.logs import instant
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.operations.repair import RepairedShard
    from streams.journal.tails import Mark
    from streams.repair import Damage, LostTail


@click.command(short_help="Accept that a stream lost its end, and run its shards again.")
@click.option(
    "--accept-loss",
    "which",
    metavar="SHARD[,…]|all",
    required=True,
    multiple=True,
    help="Shards that are refused (repeatable); all: each that angarium doctor tells of.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="What was lost and done, in JSON.")
@options.takes(*options.CONNECTION, *options.INSTALLATION)
def repair(which: tuple[str, ...], yes: bool, as_json: bool, **given: Any) -> None:
    """Accept that a stream lost its tail, and let its shards run again. It says what is lost, and asks.

    Receivers get what is left and what came since; what was delivered already may come again. Their numbers
    go on after a gap of 512 or more. It may be cut off, and run again. It needs the rights of a node.
    """
    from angarium.operations.repair import accept

    def agreed(damages: "Sequence[Damage]") -> bool:
        for damage in damages:
            for line in lines(damage):
                output.note(line)
        if yes:
            return True
        if not output.answers_come():
            raise click.UsageError("the above would be accepted as lost; say --yes")
        return click.confirm("accept it as lost?", err=True)

    settings = options.settings_of(given)
    shards = shards_of(which, settings.shards)
    done = perform(settings, lambda to: accept(to, shards, agreed))
    if as_json:
        output.say_json([document(each) for each in done.repaired])
    else:
        for line in summary(done.repaired):
            output.say(line)
    if done.failures:
        raise click.ClickException("; ".join(each.text for each in done.failures))


def shards_of(which: Sequence[str], count: int) -> tuple[int, ...] | None:
    """The shards that were named, None for all that are refused. Raises click.UsageError."""
    named = [part.strip() for text in which for part in text.split(",")]
    if "all" in named:
        if len(named) > 1:
            raise click.UsageError("--accept-loss: name shards, or say all")
        return None
    for text in named:
        if not text.isdecimal() or int(text) >= count:
            raise click.UsageError(f"--accept-loss: {text!r} is no shard; they are 0 to {count - 1}")
    return tuple(dict.fromkeys(map(int, named)))


def lines(damage: "Damage") -> list[str]:
    """The loss that would be accepted, in sentences."""
    told = [
        f"shard {damage.shard}: {gap.stream} has lost what followed {_told(gap.kept)}, up to "
        f"{_told(gap.known)} at least; {damage.receivers} receivers"
        for gap in damage.gaps
    ]
    told += [
        f"shard {damage.shard}: {name} was recreated or restored, and is the right one from now on"
        for name in damage.remade
    ]
    if told:
        return told
    if damage.missing and not damage.cut_off:
        return [f"shard {damage.shard}: it is refused for a message whose place was purged since"]
    return [f"shard {damage.shard}: a repair was cut off before its end"]


def _told(mark: "Mark") -> str:
    when = f" (stored at {instant(mark.stored_at)})" if mark.stored_at else ""
    return f"message {mark.position}{when}" if mark.position else "its beginning"


def document(repaired: "RepairedShard") -> dict[str, Any]:
    """The loss and what was done, as `--json` says it."""
    damage = repaired.damage
    return {
        "shard": damage.shard,
        "lost": [_lost(gap) for gap in damage.gaps],
        "remade": list(damage.remade),
        "receivers": damage.receivers,
        "brought_back": repaired.brought_back,
    }


def _lost(gap: "LostTail") -> dict[str, Any]:
    return {
        "stream": gap.stream,
        "after": gap.kept.position,
        "after_at": instant(gap.kept.stored_at) if gap.kept.stored_at else None,
        "to": gap.known.position,
        "to_at": instant(gap.known.stored_at) if gap.known.stored_at else None,
    }


def summary(done: "Sequence[RepairedShard]") -> list[str]:
    """The result of a repair for people."""
    told = [
        f"shard {each.damage.shard} is repaired; {each.brought_back} receivers went back" for each in done
    ]
    return told or ["nothing was repaired"]
