"""`angarium setup`: makes the streams and buckets of an installation."""

from typing import Any

import click

from angarium.cli import options
from angarium.settings import Settings
from angarium.terminal import output
from angarium.terminal.run import run


@click.command(short_help="Make the streams and buckets of an installation.")
@click.option("--json", "as_json", is_flag=True, help="What was made, in JSON.")
@options.takes(*options.CONNECTION, *options.INSTALLATION)
def setup(as_json: bool, **given: Any) -> None:
    """Make the streams, buckets and consumers that are missing, and print what was made and their room.

    It may run any number of times: it only adds, and refuses where what is there contradicts the settings.
    The number of shards is fixed for the life of the installation.
    """
    settings = options.settings_of(given)
    from msgspec import to_builtins

    from angarium.operations import sizing

    made, rooms = run(_setup(settings))
    if as_json:
        output.say_json({"made": made, "rooms": to_builtins(rooms)})
        return
    for line in made or ["everything was there already"]:
        output.say(line)
    for line in ("", *sizing.lines(rooms)):
        output.say(line)


async def _setup(settings: Settings) -> tuple[list[str], list[Any]]:
    from angarium.connecting import installation, open_jetstream
    from angarium.operations import sizing
    from streams.installation.setup import setup as set_up

    async with open_jetstream(settings) as js:
        made = await set_up(js, installation(settings))
        return made, await sizing.rooms(js, installation(settings))
