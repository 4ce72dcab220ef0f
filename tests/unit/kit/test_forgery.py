"""Requests that the kit must refuse, made without the secret or from one captured request."""

import base64
import json
from typing import Any

import pytest
from angarium_receiver import Answer, Delivery, InvalidKey, Receiver, VerificationError, parse_key, verify

from tests.unit.kit.requests import NOW, SECRET, headers

BODY = b'{"order": 7}'


def receiver(*secrets: str, **members: Any) -> Receiver:
    return Receiver(*(secrets or (SECRET,)), clock=lambda: NOW, ticks=lambda: 0.0, **members)


def test_a_handshake_signs_no_event() -> None:
    """An attacker asks for a proof, and sends it back as the signatures of an event of their own."""
    known = receiver()
    chosen = "pay=1000&to=mallory&x="
    answer = known.receive("GET", {"angarium-challenge": f"{int(NOW)}.{chosen}"}, b"")
    if isinstance(answer, Answer) and answer.status == 400:
        return
    assert isinstance(answer, Answer)
    proof = json.loads(answer.body)
    forged = {
        "webhook-id": "angarium.handshake",
        "webhook-timestamp": str(int(NOW)),
        "webhook-signature": "v1," + proof["hmac"],
        "angarium-sequence": str(int(NOW)),
        "angarium-signature": "v1," + proof["hmac"],
        "angarium-event": "order.paid",
    }
    found = known.receive("POST", forged, f"{chosen}.{proof['nonce']}".encode())
    assert not isinstance(found, Delivery), found


def test_a_handshake_with_a_number_for_a_challenge_signs_no_event() -> None:
    """The same without a dot in the challenge: the body is the nonce, the number is the attacker's."""
    known = receiver()
    answer = known.receive("GET", {"angarium-challenge": str(int(NOW))}, b"")
    assert isinstance(answer, Answer)
    if answer.status == 400:
        return
    proof = json.loads(answer.body)
    forged = {
        "webhook-id": "angarium.handshake",
        "webhook-timestamp": str(int(NOW)),
        "webhook-signature": "v1," + proof["hmac"],
        "angarium-sequence": str(int(NOW)),
        "angarium-signature": "v1," + proof["hmac"],
    }
    assert not isinstance(known.receive("POST", forged, proof["nonce"].encode()), Delivery)


@pytest.mark.parametrize("numbers", ["7", None])
def test_a_timestamp_is_not_a_number(numbers: str | None) -> None:
    """A captured request, even a ping, comes again under the number 1,800,000,000, rightly signed."""
    captured = headers(BODY, numbers)
    captured["angarium-sequence"] = captured["webhook-timestamp"]
    captured["angarium-signature"] = captured["webhook-signature"]
    with pytest.raises(VerificationError):
        verify(captured, BODY, [parse_key(SECRET)], NOW)


def test_a_body_chosen_by_a_producer_gives_no_other_id_and_time() -> None:
    """id.time.body with a body of "<time>.<body>" is also (id.time).<time>.<body>."""
    later = int(NOW) + 86_400
    chosen = f"{later}.anything".encode()
    captured = headers(chosen, None)
    forged = captured | {
        "webhook-id": f"evt_1.{int(NOW)}",
        "webhook-timestamp": str(later),
        "angarium-sequence": str(later),
        "angarium-signature": captured["webhook-signature"],
    }
    with pytest.raises(VerificationError):
        verify(forged, b"anything", [parse_key(SECRET)], float(later))


def test_an_event_whose_number_was_taken_off_is_not_a_ping() -> None:
    """A gateway that passes webhook-* alone: each event is answered 204, and none is done."""
    event = headers(BODY)
    del event["angarium-sequence"], event["angarium-signature"]
    found = receiver().receive("POST", event, BODY)
    assert not (isinstance(found, Answer) and found.status == 204), "said delivered, did nothing"


def test_another_senders_event_is_not_a_ping() -> None:
    """Standard Webhooks without Angarium's headers: the README says "genuine"; it is answered 204 unseen."""
    event = {name: value for name, value in headers(BODY).items() if name.startswith("webhook-")}
    found = receiver().receive("POST", event, BODY)
    assert not (isinstance(found, Answer) and found.status == 204), "said delivered, did nothing"


@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31)])
def test_a_public_key_of_small_order_is_not_a_key(point: bytes) -> None:
    """A placeholder such as whpk_AAAA… accepts signatures made without a secret."""
    with pytest.raises(InvalidKey):
        parse_key("whpk_" + base64.b64encode(point).decode())


def test_a_public_key_that_is_not_a_point_is_not_a_key() -> None:
    with pytest.raises(InvalidKey):
        parse_key("whpk_" + base64.b64encode((2).to_bytes(32, "little")).decode())


@pytest.mark.parametrize("prefix", ["whsec_", "whs512_"])
def test_a_secret_without_padding_is_the_same_as_for_the_sender(prefix: str) -> None:
    """The sender takes it (signing_secrets.secret_key), so the receiver must."""
    text = prefix + base64.b64encode(bytes(range(32))).decode().rstrip("=")
    request = headers(BODY, "7", text)
    assert verify(request, BODY, [parse_key(text)], NOW).numbers == (7,)
