"""Publishing for `angarium publish`: one event after the other, each until its fate is known."""

import asyncio
import contextlib
import uuid
from collections.abc import Iterable

import click
import msgspec
from msgspec import Struct

from actors.errors import InvalidPolicy
from actors.policy import parse
from actors.subscriptions import Subscriptions
from angarium.connecting import installation, open_jetstream
from angarium.settings import Settings
from angarium.terminal import output
from streams.nats.answers import Forbidden, Refused, Stored, Unanswered
from streams.nats.errors import Unavailable
from streams.nats.jetstream import MESSAGE_TOO_LARGE, JetStream
from streams.reading import messages
from streams.receivers import Receivers

TRIES = 5
PAUSE_S = 0.5
LOOK_S = 1.0


class Draft(Struct, frozen=True, kw_only=True):
    """A draft of the events of one run; an empty `id` means a new one each.

    `target` is a tenant, or one receiver.
    """

    target: str
    type: str
    content_type: str
    id: str = ""

    @property
    def direct(self) -> bool:
        """Tells whether it goes to one receiver."""
        return "." in self.target

    def headers(self) -> dict[str, str]:
        """The headers of one event.

        JetStream compares message ids over all tenants and receivers, so the target stands before the id.
        """
        event_id = self.id or str(uuid.uuid4())
        headers = {
            messages.ID: event_id,
            messages.MESSAGE_ID: f"{self.target}:{event_id}",
            messages.CONTENT_TYPE: self.content_type,
        }
        return headers | {messages.TYPE: self.type} if self.direct else headers


async def publish_all(
    settings: Settings, draft: Draft, bodies: Iterable[bytes], *, numbered: bool, as_json: bool
) -> None:
    """Publish the bodies in order and show each; raises click.ClickException at the first that is refused."""
    async with open_jetstream(settings) as js:
        names = installation(settings).names
        subject, stream = names.publish_event(draft.target, draft.type), names.events
        if draft.direct:
            subject, stream = names.publish_to(draft.target), names.deliveries
        for number, body in enumerate(bodies, 1):
            headers = draft.headers()
            try:
                stored = await _publish(js, subject, body, headers)
            except click.ClickException as error:
                where = f"line {number}: " if numbered else ""
                rest = f" ({number - 1} published before it)" if numbered else ""
                raise click.ClickException(f"{where}{error.message}{rest}") from None
            _show(stream, stored, headers[messages.ID], as_json=as_json)
            if draft.content_type == messages.CONTENT_TYPE_DEFAULT and not _is_json(body):
                output.note("note: the body is not JSON; say what it is with --content-type")
        if output.on_terminal():
            await _note_unheard(Receivers(js, names), draft)


async def _publish(js: JetStream, subject: str, body: bytes, headers: dict[str, str]) -> Stored:
    """Repeats an unanswered one under its id, which is harmless, since JetStream drops what it has."""
    for left in range(TRIES - 1, -1, -1):
        match await js.publish(subject, body, headers):
            case Stored() as stored:
                return stored
            case Refused(code, text):
                raise click.ClickException(_refusal(code, text))
            case Forbidden(why):
                raise click.ClickException(f"refused: {why}")
            case Unanswered(why):
                if not left:
                    raise click.ClickException(
                        f"nobody confirmed the event ({why}); it is stored or not: publish it again with "
                        f"--id {headers[messages.ID]}, and see angarium doctor"
                    )
                await asyncio.sleep(PAUSE_S)
    raise AssertionError


def _refusal(code: int, text: str) -> str:
    if code == MESSAGE_TOO_LARGE:
        return "refused: the event is larger than max_body; send less, or a link to it"
    return f"refused: {text} (JetStream error {code})"


def _show(stream: str, stored: Stored, event_id: str, *, as_json: bool) -> None:
    shown = {
        "stream": stream,
        "position": stored.sequence,
        "id": event_id,
        "duplicate": stored.duplicate,
    }
    if as_json:
        output.say_json_line(shown)
    else:
        output.say(f"{stream} {stored.sequence} {event_id}{' (duplicate: dropped)' * stored.duplicate}")


async def _note_unheard(receivers: Receivers, draft: Draft) -> None:
    """Tell somebody who mistyped a name; producers need not be allowed to look, and are told nothing."""
    with contextlib.suppress(TimeoutError, Unavailable):
        async with asyncio.timeout(LOOK_S):
            if not draft.direct:
                if not await _subscribed(receivers, draft):
                    output.note(f"note: no receiver of {draft.target} subscribes to {draft.type}")
            elif await receivers.get(draft.target) is None:
                output.note(f"note: there is no receiver {draft.target} yet; its events become dead letters")


async def _subscribed(receivers: Receivers, draft: Draft) -> bool:
    """Tells whether anybody gets an event of this type. Raises `Unavailable`."""
    subscriptions = Subscriptions()
    for receiver, configuration in (await receivers.all(draft.target)).items():
        with contextlib.suppress(InvalidPolicy):
            subscriptions.put(receiver, parse(configuration.raw, strict=False)[0].events)
    return bool(subscriptions.match(draft.target, draft.type))


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
