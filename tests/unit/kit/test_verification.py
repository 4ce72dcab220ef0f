"""A request is genuine if one of the keys has made each signature, a short time ago."""

import base64

import pytest
from angarium_receiver import Delivery, InvalidKey, VerificationError, parse_key, verify
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey
from standardwebhooks import Webhook

from angarium.delivery.signing import public_key
from tests.unit.kit.requests import NOW, SECRET, headers

SEED = "whsk_" + base64.b64encode(bytes(range(32))).decode()
PUBLIC = public_key(SEED) or ""
LONG = "whs512_" + base64.b64encode(bytes(range(64))).decode()
BODY = b'{"order": 7}'
BATCH = b'{"events": [{"sequence": 17}, {"sequence": 18}, {"sequence": 42}]}'


@pytest.mark.parametrize(("secret", "text"), [(SECRET, SECRET), (LONG, LONG), (SEED, PUBLIC)])
@pytest.mark.parametrize(
    ("sequence", "body", "numbers"), [("7", BODY, (7,)), ("17-42", BATCH, (17, 18, 42)), (None, BODY, ())]
)
def test_requests_of_the_sender_are_genuine(
    secret: str, text: str, sequence: str | None, body: bytes, numbers: tuple[int, ...]
) -> None:
    found = verify(headers(body, sequence, secret), body, [parse_key(text)], NOW)
    kind = "order.created" if sequence else "angarium.ping"
    assert found == Delivery("evt_1", numbers, kind, 2, body, content_type="application/json", new=numbers)
    assert found.is_ping is (sequence is None)


def test_one_of_several_keys_is_enough_for_one_of_several_signatures() -> None:
    given_headers = headers(BODY, "7", LONG, SECRET)
    given_headers["webhook-signature"] = "v9,odd v1,!!! " + given_headers["webhook-signature"]
    other = parse_key("whsec_" + "A" * 32)
    assert verify(given_headers, BODY, [other, parse_key(SECRET)], NOW).numbers == (7,)
    with pytest.raises(VerificationError, match="webhook-signature is wrong"):
        verify(given_headers, BODY, [other], NOW)


def test_a_request_of_standard_webhooks_without_a_number_is_genuine() -> None:
    from datetime import UTC, datetime

    signature = Webhook(SECRET).sign("evt_1", datetime.fromtimestamp(NOW, UTC), BODY.decode())
    request = {"Webhook-Id": "evt_1", "Webhook-Timestamp": str(int(NOW)), "Webhook-Signature": signature}
    found = verify(request, BODY, [parse_key(SECRET)], NOW)
    assert (found.numbers, found.is_ping) == ((), False)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"webhook-id": ""}, "no usable webhook-id"),
        ({"webhook-id": "évt"}, "no usable webhook-id"),
        ({"webhook-id": "evt_2"}, "webhook-signature is wrong"),
        ({"webhook-timestamp": "-1"}, "no usable webhook-timestamp"),
        ({"webhook-timestamp": "9" * 20}, "no usable webhook-timestamp"),
        ({"webhook-timestamp": str(int(NOW) - 1)}, "webhook-signature is wrong"),
        ({"webhook-signature": ""}, "webhook-signature is missing"),
        ({"webhook-signature": "v1,"}, "webhook-signature is wrong"),
        ({"angarium-sequence": "8"}, "angarium-signature is wrong"),
        ({"angarium-sequence": "7-8"}, "angarium-signature is wrong"),
        ({"angarium-signature": ""}, "angarium-signature is missing"),
    ],
)
def test_a_changed_request_is_not_genuine(change: dict[str, str], why: str) -> None:
    with pytest.raises(VerificationError, match=why):
        verify(headers(BODY) | change, BODY, [parse_key(SECRET)], NOW)


@pytest.mark.parametrize("sequence", ["0", "x", "0-3", "01", "9" * 16, "1-", "1-2-3"])
def test_impossible_numbers_are_refused_even_if_they_are_signed(sequence: str) -> None:
    with pytest.raises(VerificationError, match="no usable angarium-sequence"):
        verify(headers(BODY, sequence), BODY, [parse_key(SECRET)], NOW)


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        b"[]",
        b'{"events": 1}',
        b'{"events": []}',
        b'{"events": [{}]}',
        b'{"events": [{"sequence": 1}, {"sequence": 2}]}',
        b'{"events": [{"sequence": 1}, {"sequence": 3}, {"sequence": 3}]}',
        b'{"events": [{"sequence": 1}, {"sequence": 4}, {"sequence": 3}]}',
        b'{"events": [{"sequence": "1"}, {"sequence": "3"}]}',
        b"[" * 100_000,
    ],
)
def test_a_batch_whose_body_has_other_numbers_is_refused(body: bytes) -> None:
    with pytest.raises(VerificationError, match="batch"):
        verify(headers(body, "1-3"), body, [parse_key(SECRET)], NOW)


@pytest.mark.parametrize(("late_s", "good"), [(-301, False), (-300, True), (300, True), (301, False)])
def test_a_request_is_genuine_for_five_minutes(late_s: float, good: bool) -> None:
    request = headers(BODY)
    if good:
        verify(request, BODY, [parse_key(SECRET)], NOW + late_s)
    else:
        with pytest.raises(VerificationError, match=f"{late_s} s old"):
            verify(request, BODY, [parse_key(SECRET)], NOW + late_s)


def test_only_some_signatures_of_a_header_are_tried() -> None:
    request = headers(BODY)
    request["webhook-signature"] = "v1,AAAA " * 32 + request["webhook-signature"]
    with pytest.raises(VerificationError):
        verify(request, BODY, [parse_key(SECRET)], NOW)


def test_no_keys_are_an_error_of_the_program() -> None:
    with pytest.raises(ValueError, match="needs a key"):
        verify(headers(BODY), BODY, [], NOW)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must begin with"),
        ("secret", "must begin with"),
        (SEED, "only its public key"),
        ("whsec_!", "not base64"),
        ("whsec_AAAA", "has 3 bytes"),
        ("whsec_" + "A" * 31, "has 23 bytes"),
        ("whs512_" + "A" * 88, "has 66 bytes"),
        ("whpk_" + "A" * 44, "this has 33"),
    ],
)
def test_a_key_that_cannot_be_used_says_why_and_not_what(text: str, why: str) -> None:
    with pytest.raises(InvalidKey, match=why) as caught:
        parse_key(text)
    assert len(text) < 8 or text not in str(caught.value)


@pytest.mark.parametrize("text", [SECRET, LONG])
def test_no_repr_shows_a_secret(text: str) -> None:
    assert repr(parse_key(text)) == "HmacKey(…)"
    assert PUBLIC.removeprefix("whpk_") in repr(parse_key(PUBLIC))


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100), st.integers(0, 511))
def test_ed25519_agrees_with_libsodium(seed: bytes, message: bytes, bit: int) -> None:
    from angarium_receiver import ed25519

    key = SigningKey(seed)
    public, signature = bytes(key.verify_key), key.sign(message).signature
    assert ed25519.verify(public, signature, message)
    assert not ed25519.verify(public, signature, message + b"x")
    changed = bytearray(signature)
    changed[bit // 8] ^= 1 << bit % 8
    assert not ed25519.verify(public, bytes(changed), message)


def test_ed25519_refuses_what_rfc_8032_does() -> None:
    from angarium_receiver import ed25519

    key = SigningKey(bytes(32))
    public, signature = bytes(key.verify_key), key.sign(b"m").signature
    s = int.from_bytes(signature[32:], "little") + ed25519.ORDER
    assert not ed25519.verify(public, signature[:32] + s.to_bytes(32, "little"), b"m")
    assert not ed25519.verify(public, signature[:63], b"m")
    assert not ed25519.verify(public[:31], signature, b"m")
    no_points = [(ed25519.P).to_bytes(32, "little"), (2).to_bytes(32, "little"), b"\1" + bytes(30) + b"\x80"]
    assert not any(ed25519.verify(each, signature, b"m") for each in no_points)
