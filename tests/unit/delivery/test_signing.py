"""Signatures: published libraries verify them, and secrets are never shown."""

import base64
import hashlib
import hmac
import json
import pickle
import subprocess
import sys
from datetime import UTC, datetime

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from angarium.delivery.signing import InvalidSecret, parse_key, parse_secret, public_key, sign

TEXT = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = b"msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'
SIGNED = b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

keys = st.binary(min_size=24, max_size=64)
ids = st.text("ABCxyz019_-:", min_size=1, max_size=128)


def written(key: bytes, prefix: str = "whsec_") -> str:
    return prefix + base64.b64encode(key).decode()


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
        ("", "must begin with whsec_, whs512_ or whsk_"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin with whsec_"),
        ("whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "is a public key"),
        ("whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "32 or 64 bytes, has 24"),
        ("whsk_MfKQ*", "not base64 after whsk_"),
        ("whs512_MfKQ", "24 to 64 bytes, has 3"),
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


@given(keys, ids, st.integers(0, 2**63), st.binary(max_size=2048))
def test_a_whs512_secret_signs_by_hmac_sha512(key: bytes, event_id: str, number: int, body: bytes) -> None:
    expected = hmac.digest(key, f"{event_id}.{number}.".encode() + body, hashlib.sha512)
    secret = parse_secret(written(key, "whs512_"), "secrets[0]")
    assert sign([secret], event_id.encode(), number, body) == b"v1s512," + base64.b64encode(expected)


def test_the_vectors_of_ed25519() -> None:
    """Test 2 of RFC 8032, 7.1."""
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    text = written(seed, "whsk_")
    assert parse_secret(text, "secrets[0]").sign(b"\x72") == b"v1a," + base64.b64encode(signature)
    assert public_key(text) == written(public, "whpk_")
    assert public_key(written(seed + public, "whsk_")) == public_key(text)


@given(st.binary(min_size=32, max_size=32), ids, st.integers(0, 2**63), st.binary(max_size=2048))
def test_another_library_verifies_an_ed25519_signature_with_the_public_key(
    seed: bytes, event_id: str, number: int, body: bytes
) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    text = written(seed, "whsk_")
    version, _, signature = sign([parse_secret(text, "")], event_id.encode(), number, body).partition(b",")
    public = base64.b64decode((public_key(text) or "").removeprefix("whpk_"))
    content = f"{event_id}.{number}.".encode() + body
    assert version == b"v1a"
    Ed25519PublicKey.from_public_bytes(public).verify(base64.b64decode(signature), content)


def test_the_published_libraries_pass_over_signatures_that_they_do_not_know() -> None:
    import svix.webhooks

    timestamp = int(datetime.now(UTC).timestamp())
    others = (written(b"k" * 32, "whsk_"), written(b"k" * 32, "whs512_"), TEXT)
    secrets = [parse_secret(each, "secrets") for each in others]
    headers = {
        "webhook-id": ID.decode(),
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secrets, ID, timestamp, BODY).decode(),
    }
    standardwebhooks.Webhook(TEXT).verify(BODY, headers)
    svix.webhooks.Webhook(TEXT).verify(BODY, headers)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100))
def test_a_key_knows_its_own_signatures(seed: bytes, content: bytes) -> None:
    secrets = [written(seed, prefix) for prefix in ("whsec_", "whs512_", "whsk_")]
    keys = [parse_key(each, "--secret") for each in (*secrets, public_key(secrets[2]) or "")]
    for index, secret in enumerate(secrets):
        signature = parse_secret(secret, "").sign(content)
        made = [key.verify(signature, content) for key in keys]
        assert made == [index == 0, index == 1, index == 2, index == 2]
        assert not any(key.verify(signature, content + b" ") for key in keys)
        assert not any(
            key.verify(bad, content) for key in keys for bad in (b"", b"v1a,", b"v1a,*", signature[:-4])
        )


@pytest.mark.parametrize(("text", "remedy"), [("whpk_*", "not base64"), ("whpk_MfKQ", "32 bytes, has 3")])
def test_a_public_key_that_cannot_be_used_is_refused(text: str, remedy: str) -> None:
    with pytest.raises(InvalidSecret, match=remedy):
        parse_key(text, "--secret")


def test_only_a_whsk_secret_has_a_public_key() -> None:
    assert public_key(TEXT) is None
    assert public_key(written(b"k" * 32, "whs512_")) is None
    assert public_key("whsk_MfKQ") is None


def test_no_other_secret_loads_the_library_of_ed25519() -> None:
    program = (
        "import sys, angarium.delivery.sender; from angarium.delivery.signing import parse_secret;"
        f"parse_secret({TEXT!r}, ''); parse_secret({written(b'k' * 32, 'whs512_')!r}, '');"
        "assert not any(name.startswith('nacl') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("text", [TEXT, written(b"31f29" * 8, "whs512_"), "whsk_" + "MfKQ" * 10 + "MfI="])
def test_a_secret_is_never_shown(text: str) -> None:
    secret = parse_secret(text, "secrets[0]")
    shown = f"{secret} {secret!r} {[secret]}"
    assert "MfKQ" not in shown
    assert "31f29" not in shown
    with pytest.raises(TypeError):
        pickle.dumps(secret)
