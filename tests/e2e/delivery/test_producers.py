"""Events from a producer that uses only nats-py, to receivers that verify with third-party packages."""

from collections.abc import AsyncIterator

import nats
import pytest
import pytest_asyncio
import standardwebhooks
from nats.js import JetStreamContext

from tests.support.fleet.fleet import Fleet
from tests.support.fleet.records import Arrival
from tests.support.fleet.sink import Request

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRETS = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="]


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Fleet:
    return shared_fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def js(shared_fleet: Fleet) -> AsyncIterator[JetStreamContext]:
    """A plain client, used in the usual way."""
    client = await nats.connect(shared_fleet.server.url)
    yield client.jetstream()
    await client.close()


async def arrivals(fleet: Fleet, receiver: str, last: str) -> list[Arrival]:
    """Returns the arrivals, once the event of that id is there, which was published last."""
    seen = fleet.sink.arrivals[receiver]
    await fleet.until(lambda: any(each.event_id == last for each in seen), f"{last} arrived")
    return seen


async def test_a_publish_that_is_repeated_is_delivered_once(fleet: Fleet, js: JetStreamContext) -> None:
    """JetStream drops the same message id, and says so to the producer."""
    await fleet.configure(["t.message-ids"])
    first = await js.publish("angarium.deliver.t.message-ids", b"{}", headers={"Nats-Msg-Id": "order-1"})
    again = await js.publish("angarium.deliver.t.message-ids", b"{}", headers={"Nats-Msg-Id": "order-1"})
    await js.publish("angarium.deliver.t.message-ids", b"{}", headers={"Nats-Msg-Id": "order-2"})
    assert (first.duplicate, again.duplicate, again.seq) == (None, True, first.seq)
    seen = await arrivals(fleet, "t.message-ids", "order-2")
    assert [(each.sequence, each.event_id) for each in seen] == [(1, "order-1"), (2, "order-2")]


async def test_an_event_id_within_the_window_is_delivered_once(fleet: Fleet, js: JetStreamContext) -> None:
    """The actor drops it: to JetStream the two messages have nothing in common."""
    await fleet.configure(["t.event-ids"])
    for event_id in ("e-1", "e-2", "e-1", "e-3"):
        await js.publish("angarium.deliver.t.event-ids", b"{}", headers={"Angarium-Id": event_id})
    seen = await arrivals(fleet, "t.event-ids", "e-3")
    assert [(each.sequence, each.event_id) for each in seen] == [(1, "e-1"), (2, "e-2"), (3, "e-3")]

    async def counted() -> bool:
        return bool((await fleet.ask("inspect", "t.event-ids"))["counters"]["duplicates"] == 1)

    await fleet.until_true(counted, "the repeat is counted")


async def test_body_type_and_trace_arrive_as_published(fleet: Fleet, js: JetStreamContext) -> None:
    body = bytes(range(256))
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {
        "Angarium-Id": "raw-1", "Angarium-Type": "order.created", "Content-Type": "application/octet-stream",
        "traceparent": f"00-{trace}-00f067aa0ba902b7-01", "tracestate": "vendor=1", "X-Private": "stays here",
    }  # fmt: skip
    request = await received(fleet, js, "t.raw", body, headers)
    assert request.body == body
    assert request.headers["content-type"] == "application/octet-stream"
    assert request.headers["angarium-event"] == "order.created"
    assert request.headers["traceparent"].split("-")[1] == trace
    assert request.headers["tracestate"] == "vendor=1"
    assert "x-private" not in request.headers


@pytest.mark.parametrize("secret", SECRETS, ids=["newest", "older"])
async def test_signatures_hold_by_standardwebhooks_and_svix(
    fleet: Fleet, js: JetStreamContext, secret: str
) -> None:
    """Either secret verifies while secrets are being changed."""
    import svix  # Here: above, each worker would import it, for half a second.

    receiver = f"t.signed-{SECRETS.index(secret)}"
    headers = {"Angarium-Id": "signed-1"}
    request = await received(fleet, js, receiver, b'{"order": 7}', headers, secrets=SECRETS)
    assert standardwebhooks.Webhook(secret).verify(request.body, request.headers) == {"order": 7}
    svix.Webhook(secret).verify(request.body, request.headers)
    unrelated = "whsec_" + "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4"
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(unrelated).verify(request.body, request.headers)
    with pytest.raises(svix.WebhookVerificationError):
        svix.Webhook(secret).verify(request.body + b" ", request.headers)


async def received(
    fleet: Fleet, js: JetStreamContext, receiver: str, body: bytes, headers: dict[str, str], **members: object
) -> Request:
    """The request that came of one event, whole."""
    await fleet.configure([receiver], **members)
    await js.publish(f"angarium.deliver.{receiver}", body, headers=headers)
    await arrivals(fleet, receiver, headers["Angarium-Id"])
    return fleet.sink.latest[receiver]
