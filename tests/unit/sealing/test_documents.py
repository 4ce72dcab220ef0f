"""Configurations with sealed secrets: all places of secrets, and what stays as it is stored."""

from collections import Counter
from typing import Any

import msgspec

from actors.configuration.parsing import parse
from actors.configuration.secret_places import SECRET_PLACES, is_sealed, with_secrets
from streams.sealing.documents import UNENCRYPTED, keys_used, opened, sealed
from streams.sealing.keys import NO_KEYS, Keys

RECEIVER = "acme.billing"
OLD, NEW = Keys({"old": b"o" * 32}), Keys({"new": b"n" * 32, "old": b"o" * 32})
A, B, C = (f"whsec_{letter * 32}" for letter in "ABC")
FULL: dict[str, Any] = {
    "url": "https://example.com/hook", "secrets": [A, B],
    "old_secrets": [{"secret": C, "until": "2030-01-01T00:00:00Z"}],
    "headers": {"Authorization": "Bearer hush", "x-key": ""},
    "signature": {"header": "x-sig", "secret": "hush-hush"},
    "pseudonym_key": "psk_" + "hush" * 8,
}  # fmt: skip
PLACES = [
    "secrets[0]", "secrets[1]", "old_secrets[0].secret", "headers.Authorization", "headers.x-key",
    "signature.secret", "pseudonym_key",
]  # fmt: skip


def test_every_place_of_a_secret_is_sealed_and_opens_again() -> None:
    found = sealed(NEW, RECEIVER, FULL, {})
    assert (found.problems, found.unencrypted) == ((), ())
    assert keys_used(found.members) == {"new": len(PLACES)}
    assert SECRET_PLACES.keys() == FULL.keys() - {"url"}
    text = msgspec.json.encode(found.members).decode()
    assert not [each for each in (A, B, C, "hush") if each in text]
    assert found.members["old_secrets"][0]["until"] == "2030-01-01T00:00:00Z"
    assert opened(NEW, RECEIVER, found.members).members == FULL


def test_places_say_where_a_secret_is() -> None:
    seen: list[tuple[str, str]] = []

    def note(member: str, place: str, text: str) -> str:
        seen.append((member, place))
        return text

    assert with_secrets(FULL, note) == FULL
    assert [place for _, place in seen] == PLACES
    assert [member for member, _ in seen] == [
        "secrets", "secrets", "old_secrets.secret", "headers.authorization", "headers.x-key",
        "signature.secret", "pseudonym_key",
    ]  # fmt: skip


def test_values_that_are_not_text_stay() -> None:
    odd: tuple[Any, ...] = (None, 1, "a", [1, None, {}], {"secret": 1}, {"x": [A]})
    for each in odd:
        members = dict.fromkeys(FULL, each)
        assert opened(NEW, RECEIVER, sealed(NEW, RECEIVER, members, {}).members).members == members


def test_a_secret_that_is_stored_keeps_its_sealed_text() -> None:
    stored = sealed(NEW, RECEIVER, FULL, {}).members
    changed = FULL | {"secrets": [C, B, A], "headers": {"authorization": "Bearer hush"}}
    found = sealed(NEW, RECEIVER, changed, stored).members
    assert found["secrets"][1:] == [stored["secrets"][1], stored["secrets"][0]]
    assert found["headers"] == {"authorization": stored["headers"]["Authorization"]}
    assert found["secrets"][0] not in stored["secrets"]


def test_a_secret_under_an_older_key_is_sealed_with_the_present_one() -> None:
    stored = sealed(OLD, RECEIVER, FULL, {}).members
    assert keys_used(stored) == {"old": len(PLACES)}
    found = sealed(NEW, RECEIVER, opened(NEW, RECEIVER, stored).members, stored).members
    assert keys_used(found) == {"new": len(PLACES)}


def test_clear_secrets_are_sealed_and_counted() -> None:
    assert keys_used(FULL) == Counter({UNENCRYPTED: len(PLACES)})
    assert keys_used(sealed(NEW, RECEIVER, FULL, FULL).members) == {"new": len(PLACES)}


def test_without_a_key_stored_secrets_stay_and_new_ones_are_reported() -> None:
    stored = sealed(NEW, RECEIVER, FULL, {}).members
    assert sealed(NO_KEYS, RECEIVER, stored, stored).members == stored
    found = sealed(NO_KEYS, RECEIVER, stored | {"secrets": [A, stored["secrets"][0]]}, stored)
    assert (found.problems, found.unencrypted) == ((), ("secrets[0]",))
    assert sealed(NO_KEYS, RECEIVER, FULL, FULL).unencrypted == ()


def test_a_sealed_text_from_elsewhere_is_refused() -> None:
    elsewhere = sealed(NEW, "acme.other", FULL, {}).members
    for keys, why in ((NEW, "another receiver"), (NO_KEYS, "add that key to the key file")):
        found = sealed(keys, RECEIVER, elsewhere, {})
        assert [each.partition(":")[0] for each in found.problems] == PLACES
        assert all(why in each for each in found.problems)


def test_a_text_that_a_lost_key_sealed_stays() -> None:
    lost = sealed(Keys({"lost": b"l" * 32}), RECEIVER, FULL, {}).members
    found = sealed(NEW, RECEIVER, lost | {"secrets": [A, *lost["secrets"]]}, lost)
    assert found.problems == ()
    assert keys_used(found.members) == {"new": 1, "lost": len(PLACES)}


def test_texts_that_cannot_be_opened_are_named() -> None:
    moved = sealed(NEW, RECEIVER, FULL, {}).members
    moved["headers"] = {"x-other": moved["headers"]["Authorization"]}
    moved["secrets"] = ["sealed:", moved["secrets"][1]]
    found = opened(NEW, RECEIVER, moved)
    assert [each.partition(":")[0] for each in found.problems] == ["secrets[0]", "headers.x-other"]
    assert found.members["secrets"] == ["sealed:", B]


def test_a_sealed_configuration_is_valid_to_those_without_a_key() -> None:
    """Their length is no problem either: it is that of the value, and more."""
    full = FULL | {
        "handshake": "hmac",
        "headers": {f"x-{number}": "v" * 4000 for number in range(4)},
        "signature": {"header": "x-sig", "secret": "s" * 256},
    }
    found = sealed(NEW, RECEIVER, full, {}).members
    policy, warnings = parse(msgspec.json.encode(found), strict=True)
    assert warnings == []
    assert all(map(is_sealed, policy.secrets))
