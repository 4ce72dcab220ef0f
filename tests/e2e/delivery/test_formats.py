"""Formats and steering answers over HTTP: a new owner sends the same bytes; headers of answers are heard."""

import json

import pytest

from angarium.delivery.signing import SIGNED_CONTENT, parse_key, public_key
from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.sink import Reply, Request

RECEIVER, OTHER = "t.wrapped", "t.other"
SECRET = "whsk_" + "A" * 43 + "="
SIGNATURE = {"header": "x-signature", "content": "{timestamp}.{body}", "value": "t={timestamp},v1={hmac}",
             "secret": "hush-hush"}  # fmt: skip
ABORT, DISABLE = (("angarium-abort", "true"),), (("angarium-disable", "true"),)


@pytest.mark.parametrize("form", ["envelope", "cloudevents", "cloudevents-structured"])
async def test_a_new_owner_sends_the_same_bytes_with_a_signature_by_the_same_key(
    fleet: Fleet, form: str
) -> None:
    fleet.sink.manners[RECEIVER] = lambda number: Reply(503 if number == 1 else 200)
    seen = list[Request]()
    fleet.sink.onlooker = lambda _, request: seen.append(request)
    await fleet.configure(
        [RECEIVER], format=form, secrets=[SECRET], signature=SIGNATURE, retry={"base_s": 2, "cap_s": 2}
    )
    first = await fleet.start_ready()
    await fleet.js.publish(names.publish_to(RECEIVER), b'{"order": 7}', {"Angarium-Type": "order.created"})
    await fleet.until(lambda: len(seen) == 1, "it was tried")
    await first.kill()
    await fleet.start_ready()
    await fleet.until(lambda: len(seen) == 2, "it was tried again")
    before, after = seen
    assert before.body == after.body
    for name in ("webhook-id", "angarium-sequence", "angarium-signature", "content-type"):
        assert before.headers[name] == after.headers[name]
    attributes = [name for name in before.headers if name.startswith("ce-")]
    assert bool(attributes) == (form == "cloudevents")
    assert all(before.headers[name] == after.headers[name] for name in attributes)
    key = parse_key(public_key(SECRET) or "", "public key")
    content = SIGNED_CONTENT % (after.headers["webhook-id"].encode(), b"1", after.body)
    assert key.verify(after.headers["angarium-signature"].encode(), content)
    assert after.headers["x-signature"].startswith(f"t={after.headers['webhook-timestamp']},v1=")
    if form == "envelope":
        assert json.loads(after.body)["events"][0]["data"] == {"order": 7}


async def test_an_answer_rejects_an_event_at_once_and_another_disables_the_receiver(fleet: Fleet) -> None:
    answers = [Reply(500, ABORT), Reply(200, DISABLE)]
    fleet.sink.manners[RECEIVER] = lambda number: answers[number - 1] if number <= 2 else Reply()
    await fleet.configure([RECEIVER, OTHER], retry={"base_s": 0.05, "cap_s": 0.05})
    node = await fleet.start_ready()
    for _ in range(3):
        await fleet.js.publish(names.publish_to(RECEIVER), b"{}")
    await fleet.until_true(lambda: is_disabled(fleet), "the receiver is disabled")
    inspected = await fleet.ask("inspect", RECEIVER)
    assert inspected["counters"]["dead"] == 1
    assert inspected["counters"]["delivered"] == 1
    assert inspected["why"] == "disabled: it answered angarium-disable"
    letter = await fleet.js.last_message(names.dead_letters, names.dead(RECEIVER))
    assert letter is not None
    assert letter.headers is not None
    assert letter.headers["Angarium-Reason"] == "rejected"
    await fleet.js.publish(names.publish_to(OTHER), b"{}")
    await fleet.until(lambda: bool(fleet.sink.arrivals[OTHER]), "another receiver gets its event")
    assert len(fleet.sink.arrivals[RECEIVER]) == 2
    await fleet.ask("resume", RECEIVER)
    await fleet.until(lambda: len(fleet.sink.arrivals[RECEIVER]) == 3, "the third event came")
    await node.stop()


async def is_disabled(fleet: Fleet) -> bool:
    return bool((await fleet.ask("inspect", RECEIVER))["phase"] == "disabled")
