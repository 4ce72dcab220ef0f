"""`angarium receiver test-transform`: how the last events would look to a receiver."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from actors.allowed_values import conversion_problem
from actors.configuration.transform import Transform
from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import perform
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.operations.configurations.trials.transform_trial import ShapedEvent

HEADINGS = ("STORED", "TYPE", "ID", "BODY")


def _transform(_: click.Context, __: click.Parameter, value: str | None) -> Transform | None:
    if value is None:
        return None
    try:
        return msgspec.convert(msgspec.json.decode(value), Transform)
    except msgspec.ValidationError as error:
        path, sentence = conversion_problem(error, Transform)
        member = path.removeprefix(".")
        raise click.BadParameter(f"{member}: {sentence}" if member else sentence) from None
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"not valid JSON ({error})") from None


@click.command("test-transform", short_help="Try a receiver's transform on the last events.")
@names.receiver("name")
@click.option(
    "--transform", callback=_transform, metavar="JSON", help="Another transform than the receiver's own."
)
@click.option(
    "--last", type=click.IntRange(1, 100), default=10, show_default=True, help="How many events to try."
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@options.settings_flags(*options.CONNECTION, *options.SEALING)
def transform_trial(name: str, transform: Transform | None, last: int, as_json: bool, **given: Any) -> None:
    """Show the bodies of the last events as a receiver would get them. Nothing is sent.

    The events are the last ones of its tenant that the receiver subscribes to, in its regions, the oldest
    first. Its filter is not asked.
    """
    from angarium.operations.configurations.trials.transform_trial import try_transform

    settings = options.settings_of(given)
    done = perform(settings, lambda access: try_transform(access, name, transform, last))
    if as_json:
        output.say_json(done)
        return
    if done.events:
        output.say_table(
            HEADINGS, [(each.stored_at, each.type, each.id, _body(each)) for each in done.events]
        )
    else:
        output.say("no events")
    if done.key == "made_up":
        output.note("note: there is no key of pseudonyms here, so they are made up for this trial")
    if done.cut:
        output.note("note: older events were not looked at, since there are too many")


def _body(event: "ShapedEvent") -> str:
    return f"not sent: {event.why}" if event.body is None else event.body
