"""`angarium publish`: publishes one event, or one for each line of the input, as any producer would."""

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import msgspec

from angarium.cli.invocation import completion, options
from angarium.settings import Settings
from angarium.terminal import output
from angarium.terminal.run import run

if TYPE_CHECKING:
    from angarium.operations.events.message import NewEvent
    from angarium.operations.events.publish import PublishResult

_ID = re.compile(r"[A-Za-z0-9_:-]{1,128}\Z")


@click.command(short_help="Publish events to a tenant's receivers, or to one receiver.")
@click.argument("target", metavar="TENANT[.NAME]", shell_complete=completion.receivers)
@click.argument("body", required=False)
@click.option("--type", "event_type", default="message", show_default=True, help="Type of the event.")
@click.option("--data", help="The body, for one that begins with a dash.")
@click.option("--file", "file", type=click.File("rb"), help="Read the body from a file; - is stdin.")
@click.option("--lines", is_flag=True, help="Publish each line of the input as one event.")
@click.option("--id", "event_id", help="Id of the event (default: a new UUID); duplicates are dropped.")
@click.option("--at", help="Deliver it then: 2026-12-24T18:00:00Z, or 2h from now; at most 30 days ahead.")
@click.option("--content-type", default="application/json", show_default=True, help="Type of the body.")
@click.option("--region", help="Region that the data belongs to; receivers of other regions do not get it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@options.settings_flags(*options.CONNECTION)
def publish(
    target: str,
    body: str | None,
    event_type: str,
    data: str | None,
    file: BinaryIO | None,
    lines: bool,
    event_id: str | None,
    at: str | None,
    content_type: str,
    region: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Publish an event and show where it is stored: stream, position, id.

    TENANT sends it to every receiver of the tenant that subscribes to its type, TENANT.NAME to one receiver.

    The body is the argument, or comes from --data, --file or stdin (-). With --lines the events are published
    one after the other. The command stops at the first one that is refused, so that none overtakes it.

    With --at the event waits until then: see angarium later.
    """
    from actors.configuration.problems import REGION_TEXT, is_region
    from angarium.operations.events.message import NewEvent

    settings = options.settings_of(given)
    _check(target, event_type, event_id, lines)
    if region is not None and not is_region(region):
        raise click.UsageError(f"--region: {REGION_TEXT}")
    if not (content_type.isascii() and content_type.isprintable() and content_type.strip()):
        raise click.UsageError("--content-type: printable ASCII, such as text/plain; charset=utf-8")
    tenant, _, name = target.partition(".")
    template = NewEvent(
        tenant=tenant, name=name, type=event_type, id=event_id or "", content_type=content_type,
        region=region or "",
        deliver_at=0.0 if at is None else _time(at, time.time()),
    )  # fmt: skip
    if body == "-" and file is None:
        body, file = None, sys.stdin.buffer
    bodies = _bodies([text for text in (body, data) if text is not None], file, lines)
    run(_publish(settings, template, bodies, lines=lines, as_json=as_json))


async def _publish(
    settings: Settings, template: "NewEvent", bodies: Iterable[bytes], *, lines: bool, as_json: bool
) -> None:
    """Publish the bodies in order and show each; raises click.ClickException at the first that is refused."""
    from angarium.access import Access, open_jetstream
    from angarium.operations.events.publish import Publisher
    from angarium.operations.failures import NotDone

    count, json_noted = 0, template.content_type != "application/json"
    async with open_jetstream(settings, for_command=True) as js:
        publisher = Publisher(Access(js, settings), template)
        for count, body in enumerate(bodies, 1):
            published = await publisher.publish(body)
            if isinstance(published, NotDone):
                where = f"line {count}: " if lines else ""
                rest = f" ({count - 1} published before it)" if lines else ""
                raise click.ClickException(f"{where}{published.sentence}{rest}")
            _show(published, as_json=as_json)
            if count == 1 and (why := await publisher.why_no_receiver()):
                output.note(f"note: {why}")
            if not json_noted and not _is_json(body):
                json_noted = True
                output.note("note: the body is not JSON; set its type with --content-type")
    if not count:
        output.note("note: the input has no lines, so nothing was published")


def _show(published: "PublishResult", *, as_json: bool) -> None:
    if as_json:
        output.say_json_line(msgspec.structs.asdict(published))
    else:
        dropped = " (duplicate: dropped)" * published.duplicate
        output.say(f"{published.stream} {published.position} {published.id}{dropped}")


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _check(target: str, event_type: str, event_id: str | None, lines: bool) -> None:
    """Raises click.UsageError, and InvalidName."""
    from actors.ids import check_tenant, check_type, split_receiver

    if "." in target:
        split_receiver(target)
    else:
        check_tenant(target)
    check_type(event_type)
    if event_type.startswith("angarium."):
        raise click.UsageError("--type: types that begin with angarium. are Angarium's own; choose another")
    if event_id is not None and not _ID.match(event_id):
        raise click.UsageError("--id: 1 to 128 of A-Z a-z 0-9 _ - :")
    if event_id is not None and lines:
        raise click.UsageError("--id is for one event; with --lines each event gets a new id")


def _time(text: str, now: float) -> float:
    """The time of --at. Raises click.UsageError."""
    from actors.times_as_text import instant_text
    from angarium import quantities
    from angarium.operations.events.message import delivery_time

    try:
        found = delivery_time(instant_text(now + quantities.parse_age(text)), now)
    except quantities.BadQuantity:
        found = delivery_time(text, now)
    if isinstance(found, str):
        raise click.UsageError(f"--at: {found}")
    return found


def _bodies(texts: list[str], file: BinaryIO | None, lines: bool) -> Iterator[bytes]:
    """Reads what to publish; raises click.UsageError if that is not clear."""
    if len(texts) + (file is not None) > 1:
        raise click.UsageError("several bodies were given; give one argument, --data or --file")
    if texts:
        body = os.fsencode(texts[0])  # The bytes that were typed, text or not.
        return iter(body.splitlines() if lines else [body])
    source = file or sys.stdin.buffer
    if source.isatty():
        raise click.UsageError("there is no body; give it as an argument, with --file, or on stdin")
    if lines:
        return (line.rstrip(b"\r\n") for line in source)
    if not (read := source.read()):
        raise click.UsageError("the input is empty; to publish an event with an empty body, say --data ''")
    return iter([read])
