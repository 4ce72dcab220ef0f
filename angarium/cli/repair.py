"""`angarium repair`: accepts a loss that no backup makes up for, so that refused shards run again."""

from typing import Any

import click

from angarium.cli import options
from angarium.terminal import output
from angarium.terminal.run import run


@click.command(short_help="Accept the loss of a stream's tail.")
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
    from angarium.operations import repair

    def agreed(lines: list[str]) -> bool:
        for line in lines:
            output.note(line)
        if yes:
            return True
        if not output.answers_come():
            raise click.UsageError("the above would be accepted as lost; say --yes")
        return click.confirm("accept it as lost?", err=True)

    settings = options.settings_of(given)
    shards = repair.shards_of(which, settings.shards)
    done, failed = run(repair.accept(settings, shards, agreed))
    if as_json:
        output.say_json(done)
    else:
        for line in repair.summary(done):
            output.say(line)
    if failed:
        raise click.ClickException("; ".join(failed))
