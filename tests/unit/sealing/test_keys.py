"""Sealed values: they open for their receiver and member only, and every changed byte is noticed."""

import base64
import pickle
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.sealing.keys import NO_KEYS, CannotOpen, Keys, key_of

RECEIVER, MEMBER, TEXT = "acme.billing", "secrets", "whsec_" + "A" * 32
ONE = Keys({"one": b"1" * 32})
TWO = Keys({"two": b"2" * 32, "one": b"1" * 32})


@given(st.text(), st.text())
def test_a_sealed_value_opens_again(member: str, text: str) -> None:
    sealed = ONE.seal(RECEIVER, member, text)
    assert ONE.open(RECEIVER, member, sealed) == text
    assert key_of(sealed) == "one"


def test_a_sealed_value_has_the_documented_form() -> None:
    prefix, key, encoded = ONE.seal(RECEIVER, MEMBER, TEXT).split(":")
    data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    assert (prefix, key, len(data)) == ("sealed", "one", 12 + len(TEXT) + 16)
    assert "=" not in encoded


def test_a_value_is_opened_as_others_seal_it() -> None:
    """The bytes are those of AES-256-GCM, with `<receiver>\\0<member>` as associated data."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = b"n" * 12
    data = nonce + AESGCM(b"1" * 32).encrypt(nonce, TEXT.encode(), b"acme.billing\0secrets")
    sealed = "sealed:one:" + base64.urlsafe_b64encode(data).decode().rstrip("=")
    assert ONE.open(RECEIVER, MEMBER, sealed) == TEXT


def test_no_two_seals_are_the_same() -> None:
    assert len({ONE.seal(RECEIVER, MEMBER, TEXT) for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("receiver", "member"),
    [("acme.other", MEMBER), ("other.billing", MEMBER), (RECEIVER, "headers.authorization"), (RECEIVER, "")],
)
def test_a_value_opens_nowhere_else(receiver: str, member: str) -> None:
    found = ONE.open(receiver, member, ONE.seal(RECEIVER, MEMBER, TEXT))
    assert isinstance(found, CannotOpen)
    assert "sealed for another receiver or member" in found.why


def test_every_changed_character_is_noticed() -> None:
    sealed = ONE.seal(RECEIVER, MEMBER, TEXT)
    for at in range(len(sealed)):
        for other in {"A", "b", "_", ":", "=", "\n", "é"} - {sealed[at]}:
            found = ONE.open(RECEIVER, MEMBER, sealed[:at] + other + sealed[at + 1 :])
            assert isinstance(found, CannotOpen), (at, other)


@pytest.mark.parametrize("text", ["", "a", "ab"])
def test_one_text_alone_stands_for_a_sealed_value(text: str) -> None:
    """The last character of base64 may have bits that mean nothing."""
    sealed = ONE.seal(RECEIVER, MEMBER, text)
    others = set(string.ascii_letters + string.digits + "-_") - {sealed[-1]}
    assert all(isinstance(ONE.open(RECEIVER, MEMBER, sealed[:-1] + each), CannotOpen) for each in others)


def test_every_changed_bit_is_noticed() -> None:
    head, _, encoded = ONE.seal(RECEIVER, MEMBER, TEXT).rpartition(":")
    data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        text = f"{head}:{base64.urlsafe_b64encode(bytes(changed)).decode().rstrip('=')}"
        assert isinstance(ONE.open(RECEIVER, MEMBER, text), CannotOpen), bit


@pytest.mark.parametrize("cut", range(0, 80, 7))
def test_a_value_that_was_cut_does_not_open(cut: int) -> None:
    sealed = ONE.seal(RECEIVER, MEMBER, TEXT)
    assert isinstance(ONE.open(RECEIVER, MEMBER, sealed[:cut]), CannotOpen)
    assert isinstance(ONE.open(RECEIVER, MEMBER, sealed + "A" * (cut + 1)), CannotOpen)


def test_the_first_key_seals_and_all_keys_open() -> None:
    assert key_of(TWO.seal(RECEIVER, MEMBER, TEXT)) == "two"
    assert TWO.open(RECEIVER, MEMBER, ONE.seal(RECEIVER, MEMBER, TEXT)) == TEXT


def test_a_missing_key_is_named_with_the_remedy() -> None:
    for keys in (ONE, NO_KEYS):
        found = keys.open(RECEIVER, MEMBER, TWO.seal(RECEIVER, MEMBER, TEXT))
        assert found == CannotOpen(
            "is sealed by the key two; add that key to the key file (ANGARIUM_KEY_FILE)", needs_key=True
        )


def test_another_key_under_the_same_id_opens_nothing() -> None:
    other = Keys({"one": b"9" * 32})
    assert isinstance(other.open(RECEIVER, MEMBER, ONE.seal(RECEIVER, MEMBER, TEXT)), CannotOpen)


def test_without_a_key_nothing_is_sealed() -> None:
    assert not NO_KEYS
    with pytest.raises(ValueError, match="no key"):
        NO_KEYS.seal(RECEIVER, MEMBER, TEXT)


def test_keys_show_their_ids_only_and_leave_no_process() -> None:
    assert repr(TWO) == "Keys(two, one)"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(TWO)


def test_the_reason_shows_nothing_of_the_value() -> None:
    sealed = TWO.seal(RECEIVER, MEMBER, TEXT)
    for keys in (ONE, Keys({"two": b"9" * 32})):
        found = keys.open(RECEIVER, MEMBER, sealed)
        assert isinstance(found, CannotOpen)
        assert sealed.rpartition(":")[2][:8] not in found.why
