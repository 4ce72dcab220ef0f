"""Events about alerts, from the writer to those who subscribe to them."""

import pytest

from actors.errors import Unavailable
from actors.machine.facts import AlertRaised
from streams.alert_events import AlertWriter, body_of, id_of
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from tests.contract.support.faults import FaultyJetStream, ack_lost, refused
from tests.contract.support.routers import OpenOwner, settled, stored, subscribe

A, B, C = "acme.a", "acme.b", "acme.c"
ALERT = AlertRaised(receiver=B, alert="failing", number=1, at=1_700_000_000.0)
STORE_FULL = 10077
STREAM_NOT_FOUND = 10059


async def test_an_alert_reaches_its_subscribers_except_its_own_receiver(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    await subscribe(js, names, A, "angarium.alert.>")
    await subscribe(js, names, B, "angarium.alert.failing")
    await subscribe(js, names, C, ">")
    owner = await open_owner()
    for _ in range(2):
        await AlertWriter(js, names).publish(ALERT)
    await settled(js, names, 1)
    assert await stored(js, names, A) == [body_of(ALERT)]
    assert await stored(js, names, B) == await stored(js, names, C) == []
    assert owner.totals.malformed == 0


async def test_an_alert_is_published_only_when_it_is_stored(js: JetStream, names: Names) -> None:
    faulty = FaultyJetStream(js.wire)
    await faulty.start()
    subject = names.publish_event("acme", "angarium.alert.failing")
    faulty.faults[subject] += [refused(STORE_FULL), ack_lost]
    writer = AlertWriter(faulty, names)
    with pytest.raises(Unavailable, match=f"JetStream error {STORE_FULL}"):
        await writer.publish(ALERT)
    with pytest.raises(Unavailable, match="the ack was lost"):
        await writer.publish(ALERT)
    await writer.publish(ALERT)
    info = await js.existing_stream(names.events)
    assert info.messages == 1
    await faulty.stop()


class WithoutStream(FaultyJetStream):
    """Finds no stream when a message is looked up."""

    async def next_message(self, stream: str, subject: str, sequence: int) -> StoredMessage | None:
        raise ApiError(STREAM_NOT_FOUND, "stream not found")


async def test_an_alert_waits_while_its_event_cannot_be_looked_up(js: JetStream, names: Names) -> None:
    without = WithoutStream(js.wire)
    await without.start()
    await AlertWriter(js, names).publish(ALERT)
    with pytest.raises(Unavailable, match=f"JetStream error {STREAM_NOT_FOUND}"):
        await AlertWriter(without, names).publish(ALERT)
    await without.stop()


@pytest.mark.parametrize("body", [b"{}", body_of(ALERT)])
@pytest.mark.parametrize(
    ("tenant", "event_type"), [("acme", "order"), ("acme", "angarium.alert.failing"), ("evil", "order")]
)
async def test_a_message_id_that_a_producer_has_used_costs_no_alert(
    js: JetStream, names: Names, tenant: str, event_type: str, body: bytes
) -> None:
    taken = {"Nats-Msg-Id": f"acme:{id_of(ALERT)}"}
    await js.publish(names.publish_event(tenant, event_type), body, taken)
    await AlertWriter(js, names).publish(ALERT)
    message = await js.message(names.events, 2)
    assert message is not None
    assert message.data == body_of(ALERT)
