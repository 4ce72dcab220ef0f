"""`angarium setup`: makes the streams and buckets of an installation."""

from typing import TYPE_CHECKING, Any

import click

from angarium import quantities
from angarium.cli.invocation import options
from angarium.cli.invocation.perform import perform
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.operations.installation.sizing import StreamRoom


@click.command(short_help="Create the streams and buckets of an installation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION, *options.INSTALLATION)
def setup(as_json: bool, **given: Any) -> None:
    """Create the missing streams and buckets, and show what was created and its size.

    You can run it any number of times: it only adds, and refuses if something that exists contradicts the
    settings. The number of shards cannot be changed later. It upgrades an installation whose streams
    have version 1 (builds before 0.1.0), once, while all nodes are stopped.
    """
    settings = options.settings_of(given)
    from angarium.operations.installation.setup import install

    installed = perform(settings, install)
    if as_json:
        output.say_json(installed)
        return
    say(installed.made, installed.rooms)


def say(made: list[str], rooms: "list[StreamRoom]") -> None:
    """Show what was created, the size of each stream, and how much traffic the deliveries have room for."""
    from angarium.operations.installation import sizing

    for line in made or ["everything already exists"]:
        output.say(line)
    output.say()
    output.say_table(
        ("stream", "room", "keeps"), [(each.stream, _size(each.max_bytes), each.keeps) for each in rooms]
    )
    if (capacity := sizing.capacity(rooms)) is not None:
        rate = f"{capacity.per_second:,.0f}" if capacity.per_second >= 10 else f"{capacity.per_second:.1f}"
        output.say()
        output.say(f"{capacity.stream} takes {capacity.events:,} events of 1 KiB: {rate} a second for a day.")
        output.say(f"for more room: nats stream edit {capacity.stream} --max-bytes 20GB")


def _size(max_bytes: int) -> str:
    return "no limit" if max_bytes <= 0 else quantities.bytes_text(max_bytes)
