"""Publishes events, each until the result is known, and says whether any receiver gets them."""

import asyncio
import contextlib

from msgspec import Struct
from msgspec.structs import replace

from actors.configuration.parsing import parse
from actors.errors import InvalidPolicy, Unavailable
from actors.subscriptions import Subscriptions
from angarium.access import Access
from angarium.operations.events.message import EventMessage, NewEvent, message_of
from angarium.operations.events.repeats import repeat_problem
from angarium.operations.failures import OperationError, operation
from angarium.operations.missing_streams import missing_streams_or_none
from streams.buckets.stored_configurations import StoredConfigurations
from streams.nats.answers import Forbidden, NoResponders, Refused, Stored, Unanswered
from streams.nats.errors import ApiError
from streams.nats.wire_names import MESSAGE_TOO_LARGE

TRIES_MAX = 5
RETRY_PAUSE_S = 0.5
SUBSCRIBERS_TIMEOUT_S = 1.0
"""Time to find out whether any receiver gets an event."""


class PublishResult(Struct, frozen=True, kw_only=True):
    """The position of a stored event; `duplicate`: JetStream had it already, and dropped this one."""

    stream: str
    position: int
    id: str
    duplicate: bool


class Publisher:
    """Publishes events that differ from `template` in their bodies only, in the order of the calls."""

    def __init__(self, access: Access, template: NewEvent) -> None:
        self._access = access
        self._js = access.js
        self._names = access.names
        self._template = template

    @operation
    async def publish(self, body: bytes) -> PublishResult:
        """Publish one event and return when it is stored.

        Fails as refused, conflict, not_allowed and unanswered.

        An unanswered publish is repeated with the same id, which is harmless, since JetStream drops a
        duplicate.
        """
        message = message_of(self._names, replace(self._template, body=body))
        stored = await self._store(message)
        if stored.duplicate and self._template.deliver_at:
            problem = await repeat_problem(self._access, self._template, stored.position)
            if problem is not None:
                raise problem
        return PublishResult(
            stream=message.stream, position=stored.position, id=message.id, duplicate=stored.duplicate
        )

    async def why_no_receiver(self) -> str:
        """The reason why no receiver gets these events; empty if one does, or if that is not known.

        It is known at once or within a second: producers need not be allowed to look.
        """
        with contextlib.suppress(TimeoutError, Unavailable, ApiError):
            async with asyncio.timeout(SUBSCRIBERS_TIMEOUT_S):
                return await self._why_no_receiver()
        return ""

    async def _why_no_receiver(self) -> str:
        configurations, template = StoredConfigurations(self._js, self._names), self._template
        if template.name:
            if await configurations.get(template.target) is not None:
                return ""
            return (
                f"there is no receiver {template.target}; its events become dead letters (unknown_receiver), "
                f"see angarium dead list {template.target}"
            )
        subscriptions = Subscriptions()
        for receiver, configuration in (await configurations.all(template.target)).items():
            with contextlib.suppress(InvalidPolicy):
                subscriptions.put(receiver, parse(configuration.raw, strict=False)[0].events)
        if subscriptions.match(template.target, template.type):
            return ""
        none = f"no receiver of {template.target} subscribes to {template.type}"
        if template.deliver_at:
            return f"{none} now; those that do when it is due get it"
        return f"{none}; such events are dropped"

    async def _store(self, message: EventMessage) -> Stored:
        put, may_be_stored = message.put, False
        for left in range(TRIES_MAX - 1, -1, -1):
            match await self._js.publish(put.subject, put.data, put.headers):
                case Stored() as stored:
                    return stored
                case Refused(code, text):
                    raise OperationError("refused", _refusal(code, text), str(code))
                case Forbidden(why):
                    raise OperationError("not_allowed", f"refused: {why}")
                case Unanswered(why) as answer:
                    may_be_stored |= not isinstance(answer, NoResponders)
                    if not left:
                        raise await self._not_stored(message, why, may_be_stored=may_be_stored)
                    await asyncio.sleep(RETRY_PAUSE_S)
        raise AssertionError

    async def _not_stored(self, message: EventMessage, why: str, *, may_be_stored: bool) -> OperationError:
        if may_be_stored:
            text = f"NATS did not confirm the event ({why}); it may be stored"
            remedy = f": publish it again with --id {message.id}, and see angarium doctor"
            return OperationError("unanswered", text, remedy=remedy)
        missing = await missing_streams_or_none(self._access)
        if missing is not None and message.stream in missing.names:
            text = f"the event is not stored: {missing.text}"
            return OperationError("unanswered", text, remedy=f": {missing.remedy}")
        text = f"no stream takes the event ({why}), so it is not stored"
        remedy = ": publish it again, and see angarium doctor if it fails again"
        return OperationError("unanswered", text, remedy=remedy)


def _refusal(code: int, text: str) -> str:
    if code == MESSAGE_TOO_LARGE:
        return "refused: the event is larger than max_body; send less, or a link to it"
    return f"refused: {text} (JetStream error {code})"
