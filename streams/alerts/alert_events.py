"""Events about alerts: published like any event of the tenant, and routed to all that subscribe to them.

The id consists of the receiver, the alert's number and its time, so an event that is published again after a
crash has the same one: JetStream drops it within its duplicate window, and later the receiver's actor does.
The header `Angarium-About` names the receiver that the alert is about: it gets no copy.
"""

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

from actors.errors import Unavailable
from actors.ids import ALERT_TYPES, event_id
from actors.machine.facts import AlertFact, AlertRaised
from streams.installation.topology import Names
from streams.journal.leadership import message_at
from streams.nats.answers import Refused, Stored
from streams.nats.errors import ApiError
from streams.nats.headers import EVENT_ABOUT, EVENT_ID, MESSAGE_ID
from streams.nats.jetstream import JetStream
from streams.nats.retry import GatheredReasonLog

log = logging.getLogger(__name__)


class AlertWriter:
    """See `actors.ports.AlertWriter`."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names
        self._reason = GatheredReasonLog(js, log, "alert.waiting")

    async def publish(self, notice: AlertFact) -> None:
        """Publish the event about an alert. Raises `Unavailable`, also if the stream has no room for it."""
        tenant, own_id, body = notice.receiver.partition(".")[0], id_of(notice), body_of(notice)
        headers = {EVENT_ID: own_id, EVENT_ABOUT: notice.receiver}
        event_type = ALERT_TYPES + notice.alert
        subject = self._names.publish_event(tenant, event_type)
        answer = await self._js.publish(subject, body, headers | {MESSAGE_ID: f"{tenant}:{own_id}"})
        if (
            isinstance(answer, Stored)
            and answer.duplicate
            and not await self._is_stored(answer.sequence, f"{tenant}.{event_type}", body)
        ):
            # Another producer used the message id before us.
            answer = await self._js.publish(subject, body, headers)
        if isinstance(answer, Stored):
            self._reason.clear()
            return
        why = f"{answer.text} (JetStream error {answer.code})" if isinstance(answer, Refused) else answer.why
        self._reason.log_once(why)
        raise Unavailable(why)

    async def _is_stored(self, position: int, address: str, body: bytes) -> bool:
        """True if our event is there: a producer may have published its body, even for another tenant."""
        try:
            message = await message_at(self._js, self._names.events, position)
        except ApiError as error:
            raise Unavailable(str(error)) from error
        if message is None or EVENT_ABOUT not in (message.headers or {}) or message.data != body:
            return False
        is_stray = self._names.partition_and_tenant(message.subject) is None
        return not is_stray and self._names.address_of_event(message.subject) == address


def id_of(notice: AlertFact) -> str:
    """The id of the event; with its time, it stays unique if a receiver loses its state and its numbers."""
    receiver = notice.receiver.replace(".", ":")
    return event_id(f"alert:{receiver}:{notice.number}:{round(notice.at * 1000)}", 0, notice.at)


def body_of(notice: AlertFact) -> bytes:
    """The body of the event, in JSON; the same at each repetition."""
    members: dict[str, Any] = {
        "receiver": notice.receiver,
        "alert": notice.alert,
        "change": "raised" if isinstance(notice, AlertRaised) else "recovered",
        "number": notice.number,
        "at": _instant(notice.at),
        "since": None if notice.since is None else _instant(notice.since),
        "why": notice.why,
    }
    return msgspec.json.encode(members)


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
