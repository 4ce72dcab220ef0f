"""Signatures: published libraries verify them, and secrets are never shown."""

import base64
import hashlib
import hmac
import json
import pickle
from datetime import UTC, datetime

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from angarium.delivery.signing import InvalidSecret, parse_secret, sign

TEXT = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = b"msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'
SIGNED = b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

keys = st.binary(min_size=24, max_size=64)
ids = st.text("ABCxyz019_-:", min_size=1, max_size=128)


def written(key: bytes) -> str:
    return "whsec_" + base64.b64encode(key).decode()


def test_the_vector_of_standard_webhooks() -> None:
    assert sign([parse_secret(TEXT, "secrets[0]")], ID, 1614265330, BODY) == SIGNED


def test_several_secrets_sign_in_their_order() -> None:
    other = written(b"k" * 32)
    secrets = [parse_secret(other, "secrets[0]"), parse_secret(TEXT, "secrets[1]")]
    first, second = sign(secrets, ID, 1614265330, BODY).split(b" ")
    assert second == SIGNED
    assert first == sign(secrets[:1], ID, 1614265330, BODY)


def test_no_secret_makes_no_signature() -> None:
    assert sign([], ID, 1, BODY) == b""


@given(keys, ids, st.integers(0, 2**63), st.binary(max_size=2048))
def test_a_signature_is_hmac_sha256_over_id_number_and_body(
    key: bytes, event_id: str, number: int, body: bytes
) -> None:
    expected = hmac.digest(key, f"{event_id}.{number}.".encode() + body, hashlib.sha256)
    secret = parse_secret(written(key), "secrets[0]")
    assert sign([secret], event_id.encode(), number, body) == b"v1," + base64.b64encode(expected)
    assert sign([secret], event_id.encode(), number, body) == sign([secret], event_id.encode(), number, body)


@given(st.lists(keys, min_size=1, max_size=3, unique=True), ids, st.dictionaries(st.text(), st.integers()))
def test_the_published_libraries_verify_it_with_any_of_the_secrets(
    signing: list[bytes], event_id: str, payload: dict[str, int]
) -> None:
    import svix.webhooks  # Here: above, every run of tests would import it, for half a second.

    body = json.dumps(payload).encode()
    timestamp = int(datetime.now(UTC).timestamp())
    secrets = [parse_secret(written(key), "secrets") for key in signing]
    headers = {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secrets, event_id.encode(), timestamp, body).decode(),
    }
    for key in signing:
        standardwebhooks.Webhook(written(key)).verify(body, headers)
        svix.webhooks.Webhook(written(key)).verify(body, headers)
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            standardwebhooks.Webhook(written(key)).verify(body + b" ", headers)
        with pytest.raises(svix.webhooks.WebhookVerificationError):
            svix.webhooks.Webhook(written(key)).verify(body + b" ", headers)


@given(keys)
def test_padding_may_be_left_out(key: bytes) -> None:
    bare = parse_secret(written(key).rstrip("="), "secrets[0]")
    assert sign([bare], ID, 1, BODY) == sign([parse_secret(written(key), "secrets[0]")], ID, 1, BODY)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "must begin with whsec_"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin with whsec_"),
        ("whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin with whsec_"),
        ("whsec_", "24 to 64 bytes, has 0"),
        ("whsec_" + base64.b64encode(b"k" * 23).decode(), "24 to 64 bytes, has 23"),
        ("whsec_" + base64.b64encode(b"k" * 65).decode(), "24 to 64 bytes, has 65"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS*", "not base64"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwA", "not base64"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa\u00dfw", "not base64"),
        ("whsec_MfKQ9r8G KYqrTwjUPD8ILPZIo2LaLaSw", "not base64"),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused_by_field_and_never_shown(text: str, remedy: str) -> None:
    with pytest.raises(InvalidSecret, match=remedy) as caught:
        parse_secret(text, "secrets[3]")
    assert str(caught.value).startswith("secrets[3]: ")
    assert "MfKQ" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_secret_is_never_shown() -> None:
    secret = parse_secret(TEXT, "secrets[0]")
    shown = f"{secret} {secret!r} {[secret]}"
    assert "MfKQ" not in shown
    assert "31f29" not in shown
    with pytest.raises(TypeError):
        pickle.dumps(secret)
