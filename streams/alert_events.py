"""Events about alerts: published like any event of the tenant, and routed to all that subscribe to them.

The id consists of the receiver, the alert's number and its time, so an event that is published again after a
crash has the same one: JetStream drops it within its duplicate window, and later the receiver's actor does.
The header `Angarium-About` names the receiver that the alert is about: it gets no copy.
"""

import logging
from typing import Any, assert_never

import msgspec

from actors.errors import Unavailable
from actors.ids import ALERT_TYPES, event_id, tenant_of
from actors.machine.facts import AlertFact, AlertRaised, AlertRecovered
from actors.times_as_text import instant_text
from streams.installation.topology import Names
from streams.journal.leadership import message_at
from streams.nats.answers import Refused, Stored, Unanswered
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.retry import GatheredReasonLog
from streams.nats.wire_names import EVENT_ABOUT, EVENT_ID, MESSAGE_ID

log = logging.getLogger(__name__)


class AlertWriter:
    """See `actors.ports.AlertWriter`."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names
        self._reason = GatheredReasonLog(js, log, "alert.waiting")

    async def publish(self, fact: AlertFact) -> None:
        """Publish the event about an alert. Raises `Unavailable`, also if the stream has no room for it.

        The reason is logged, since nothing else shows that an alert waits.
        """
        try:
            await self._publish(fact)
        except (Unavailable, ApiError) as error:
            self._reason.log_once(str(error))
            raise Unavailable(str(error)) from error
        self._reason.clear()

    async def _publish(self, fact: AlertFact) -> None:
        tenant, own_id, body = tenant_of(fact.receiver), id_of(fact), body_of(fact)
        headers = {EVENT_ID: own_id, EVENT_ABOUT: fact.receiver}
        event_type = ALERT_TYPES + fact.alert
        subject = self._names.publish_event(tenant, event_type)
        answer = await self._js.publish(subject, body, headers | {MESSAGE_ID: f"{tenant}:{own_id}"})
        if (
            isinstance(answer, Stored)
            and answer.duplicate
            and not await self._is_stored(answer.position, f"{tenant}.{event_type}", body)
        ):
            # Another producer used the message id before us.
            answer = await self._js.publish(subject, body, headers)
        match answer:
            case Stored():
                return
            case Refused(code=code, text=text):
                raise Unavailable(f"{text} (JetStream error {code})")
            case Unanswered(why=why):
                raise Unavailable(why)
            case _:
                assert_never(answer)

    async def _is_stored(self, position: int, address: str, body: bytes) -> bool:
        """True if our event is there: a producer may have published its body, even for another tenant."""
        message = await message_at(self._js, self._names.events, position)
        if message is None or EVENT_ABOUT not in (message.headers or {}) or message.data != body:
            return False
        is_stray = self._names.partition_and_tenant(message.subject) is None
        return not is_stray and self._names.address_of_event(message.subject) == address


def id_of(fact: AlertFact) -> str:
    """The id of the event; with its time, it stays unique if a receiver loses its state and its numbers."""
    receiver = fact.receiver.replace(".", ":")
    return event_id(f"alert:{receiver}:{fact.number}:{round(fact.at * 1000)}", 0, fact.at)


def body_of(fact: AlertFact) -> bytes:
    """The body of the event, in JSON; the same at each repetition."""
    members: dict[str, Any] = {"receiver": fact.receiver, "alert": fact.alert}
    match fact:
        case AlertRaised(since=since):
            began = None if since is None else instant_text(since)
            members |= {"change": "raised", "since": began}
        case AlertRecovered(raised_at=raised_at):
            members |= {"change": "recovered", "raised_at": instant_text(raised_at)}
        case _:
            assert_never(fact)
    members |= {"number": fact.number, "at": instant_text(fact.at), "why": fact.why}
    return msgspec.json.encode(members)
