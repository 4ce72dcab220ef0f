"""Publishes events, each until its fate is known, and says whether any receiver gets them."""

import asyncio
import contextlib
import uuid

from msgspec import Struct

from actors.errors import InvalidPolicy, Unavailable
from actors.policy import parse
from actors.subscriptions import Subscriptions
from angarium.connecting import Access
from angarium.operations.failures import OperationError, operation
from streams.nats.answers import Forbidden, Refused, Stored, Unanswered
from streams.nats.codes import MESSAGE_TOO_LARGE
from streams.nats.errors import ApiError
from streams.nats.headers import CONTENT_TYPE, EVENT_ID, EVENT_TYPE, MESSAGE_ID
from streams.receivers import Receivers

TRIES_MAX = 5
RETRY_PAUSE_S = 0.5
LOOK_TIMEOUT_S = 1.0
"""Time to find out whether any receiver gets an event."""


class Template(Struct, frozen=True, kw_only=True):
    """The common parts of the events of one run; an empty `id` means a new one each.

    `target` is a tenant, or one receiver.
    """

    target: str
    type: str
    content_type: str
    id: str = ""

    @property
    def direct(self) -> bool:
        """True if it goes to one receiver."""
        return "." in self.target

    def headers(self) -> dict[str, str]:
        """The headers of one event.

        JetStream compares message ids over all tenants and receivers, so the target stands before the id.
        """
        event_id = self.id or str(uuid.uuid4())
        headers = {
            EVENT_ID: event_id,
            MESSAGE_ID: f"{self.target}:{event_id}",
            CONTENT_TYPE: self.content_type,
        }
        return headers | {EVENT_TYPE: self.type} if self.direct else headers


class Published(Struct, frozen=True, kw_only=True):
    """The place of a stored event; `duplicate`: JetStream had it already and dropped this one."""

    stream: str
    position: int
    id: str
    duplicate: bool


class Publisher:
    """Publishes the events of one template, in the order of the calls."""

    def __init__(self, to: Access, template: Template) -> None:
        self._js = to.js
        self._names = to.names
        self._template = template

    @operation
    async def publish(self, body: bytes) -> Published:
        """Publish one event and return when it is stored. Fails as refused, not_allowed and unanswered.

        An unanswered one is repeated with its id, which is harmless, since JetStream drops what it
        has.
        """
        template, names = self._template, self._names
        subject, stream = names.publish_event(template.target, template.type), names.events
        if template.direct:
            subject, stream = names.publish_to(template.target), names.deliveries
        headers = template.headers()
        stored = await self._store(subject, body, headers)
        return Published(
            stream=stream, position=stored.sequence, id=headers[EVENT_ID], duplicate=stored.duplicate
        )

    async def unheard(self) -> str:
        """The reason why no receiver gets these events; empty if one does, or if that is not known.

        It is known at once or within a second: producers need not be allowed to look.
        """
        with contextlib.suppress(TimeoutError, Unavailable, ApiError):
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                return await self._unheard()
        return ""

    async def _unheard(self) -> str:
        receivers, template = Receivers(self._js, self._names), self._template
        if template.direct:
            if await receivers.get(template.target) is not None:
                return ""
            return (
                f"there is no receiver {template.target}; its events become dead letters (unknown_receiver), "
                f"see angarium dead list {template.target}"
            )
        subscriptions = Subscriptions()
        for receiver, configuration in (await receivers.all(template.target)).items():
            with contextlib.suppress(InvalidPolicy):
                subscriptions.put(receiver, parse(configuration.raw, strict=False)[0].events)
        if subscriptions.match(template.target, template.type):
            return ""
        return f"no receiver of {template.target} subscribes to {template.type}; such events are dropped"

    async def _store(self, subject: str, body: bytes, headers: dict[str, str]) -> Stored:
        for left in range(TRIES_MAX - 1, -1, -1):
            match await self._js.publish(subject, body, headers):
                case Stored() as stored:
                    return stored
                case Refused(code, text):
                    raise OperationError("refused", _refusal(code, text), str(code))
                case Forbidden(why):
                    raise OperationError("not_allowed", f"refused: {why}")
                case Unanswered(why):
                    if not left:
                        raise OperationError(
                            "unanswered",
                            f"NATS did not confirm the event ({why}); it may be stored: publish it "
                            f"again with --id {headers[EVENT_ID]}, and see angarium doctor",
                        )
                    await asyncio.sleep(RETRY_PAUSE_S)
        raise AssertionError


def _refusal(code: int, text: str) -> str:
    if code == MESSAGE_TOO_LARGE:
        return "refused: the event is larger than max_body; send less, or a link to it"
    return f"refused: {text} (JetStream error {code})"
