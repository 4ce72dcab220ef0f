"""A node and the library of the CloudEvents project: its receiver consents, and reads what is sent to it."""

import json

import pytest

from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.load import publish
from tests.support.processes.cloudevents_receiver import cloudevents_receiver, needs_cloudevents_receiver

BODY = '{"order": 7, "who": "Zoë"}'.encode()
PER_MINUTE = 600
RETRY = {"base_s": 0.05, "cap_s": 0.2}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@needs_cloudevents_receiver
@pytest.mark.parametrize("body_format", ["cloudevents", "cloudevents-structured"])
async def test_a_cloudevents_receiver_consents_and_reads_each_event(
    shared_fleet: Fleet, body_format: str
) -> None:
    name = f"t.{body_format}"
    rate = {"limit": 100, "burst": 50}
    async with cloudevents_receiver("angarium", PER_MINUTE) as receiver:
        await shared_fleet.configure(
            [name], url=receiver.url, handshake="cloudevents", format=body_format, rate=rate, retry=RETRY
        )
        headers = {"Angarium-Type": "order.created", "Content-Type": "application/json; charset=utf-8"}
        for each in ("a", "b"):
            await shared_fleet.js.publish(names.publish_to(name), BODY, headers | {"Angarium-Id": each})
        await shared_fleet.until(lambda: len(receiver.events) == 2, "both events came")
        state = await shared_fleet.ask("inspect", name)
    assert state["handshake"]["verified"] is True
    assert state["handshake"]["allowed_per_minute"] == PER_MINUTE
    assert state["bucket"]["effective_limit"] == PER_MINUTE / 60
    assert [each["id"] for each in receiver.events] == ["a", "b"]
    assert [each["angariumsequence"] for each in receiver.events] == ["1", "2"]
    first = receiver.events[0]
    assert (first["specversion"], first["type"], first["source"]) == ("1.0", "order.created", "/tenants/t")
    assert first["datacontenttype"] == "application/json; charset=utf-8"
    assert first["data"] == {"order": 7, "who": "Zoë"}


@needs_cloudevents_receiver
async def test_no_producer_chooses_the_number_that_the_cloudevents_library_reads(shared_fleet: Fleet) -> None:
    """With such a type the library reads all attributes from the body."""
    forged = {"specversion": "1.0", "id": "forged", "source": "/tenants/u", "type": "x", "data": 1}
    body = json.dumps(forged | {"angariumsequence": "999"}).encode()
    async with cloudevents_receiver("angarium", PER_MINUTE) as receiver:
        await shared_fleet.configure(["t.forged"], url=receiver.url, format="cloudevents", retry=RETRY)
        headers = {"Angarium-Id": "a", "Content-Type": "application/cloudevents+json"}
        await shared_fleet.js.publish(names.publish_to("t.forged"), body, headers)
        await shared_fleet.until(lambda: len(receiver.events) == 1, "the event came")
    [event] = receiver.events
    assert (event["id"], event["source"], event["angariumsequence"]) == ("a", "/tenants/t", "1")
    assert event["data"] == json.loads(body)


@needs_cloudevents_receiver
async def test_a_cloudevents_receiver_that_wants_another_sender_gets_nothing(
    shared_fleet: Fleet,
) -> None:
    async with cloudevents_receiver("somebody-else", PER_MINUTE) as receiver:
        await shared_fleet.configure(
            ["t.other"], url=receiver.url, handshake="cloudevents", format="cloudevents", retry=RETRY
        )
        await publish(shared_fleet.js, "t.other", "a", BODY)

        async def failed() -> bool:
            handshake = (await shared_fleet.ask("inspect", "t.other"))["handshake"]
            return handshake is not None and handshake["failures"] >= 1

        await shared_fleet.until_true(failed, "the handshake failed")
        state = await shared_fleet.ask("inspect", "t.other")
    assert (state["phase"], state["handshake"]["error"]) == ("unverified", "HTTP 400")
    assert receiver.events == []
