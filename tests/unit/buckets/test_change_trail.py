"""The trail of a configuration: it tells what changed, and no secret."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.buckets.change_trail import (
    TRAIL_CHANGES_MAX,
    TRAIL_LENGTH_MAX,
    recorded,
    recorded_before,
    trail_after,
)
from streams.buckets.without_secrets import without_secrets
from streams.nats.answers import StoredMessage
from streams.nats.wire_names import CHANGED_BY, EXPECTED, KV_OPERATION, TRAIL

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def message(sequence: int, raw: bytes | None, headers: dict[str, str]) -> StoredMessage:
    removal = {KV_OPERATION: "PURGE"} if raw is None else {}
    return StoredMessage("key", sequence, 1.8e9 + sequence / 7, headers | removal, raw or b"")


def put_one_after_the_other(raws: list[bytes | None]) -> list[StoredMessage]:
    """The values as they are stored: each drops the one before, and has its trail."""
    stored = list[StoredMessage]()
    for sequence, raw in enumerate(raws, 1):
        headers = {EXPECTED: str(sequence - 1), CHANGED_BY: f"user{sequence}"}
        stored.append(message(sequence, raw, headers | trail_after(stored[-1:], raw)))
    return stored


members = st.dictionaries(
    st.sampled_from(["url", "timeout_s", "rate", "events", "paused", "secret"]),
    st.one_of(st.none(), st.integers(0, 3), st.text(max_size=3), st.just({"a": [1]})),
)


@given(st.lists(st.one_of(st.none(), members), min_size=1, max_size=TRAIL_CHANGES_MAX + 3))
def test_a_trail_shows_what_was_stored(configurations: list[dict[str, Any] | None]) -> None:
    raws = [None if each is None else msgspec.json.encode(each) for each in configurations]
    stored = put_one_after_the_other(raws)
    told = [*recorded_before(stored[-1]), recorded(stored[-1])]
    assert told == [recorded(each) for each in stored[-1 - TRAIL_CHANGES_MAX :]]
    assert [each.by for each in told] == [f"user{each.revision}" for each in told]


def test_values_of_other_clients_are_in_the_trail_of_the_next_one() -> None:
    stored = put_one_after_the_other([b'{"timeout_s": 1}', b'{"timeout_s": 2}'])
    others = [message(3, b"{", {}), message(4, b'{"timeout_s": 4}', {})]
    newest = message(5, b'{"timeout_s": 5}', trail_after([stored[-1], *others], b'{"timeout_s": 5}'))
    told = [(each.revision, each.document, each.by, each.replaced) for each in recorded_before(newest)]
    assert told == [
        (1, {"timeout_s": 1}, "user1", 0), (2, {"timeout_s": 2}, "user2", 1), (3, {}, "", 2),
        (4, {"timeout_s": 4}, "", 3),
    ]  # fmt: skip


def test_no_secret_is_in_a_trail() -> None:
    url, headers = "https://user:word@example.com/token", {"authorization": "Bearer abc"}
    whole = msgspec.json.encode({"url": url, "secrets": [SECRET], "headers": headers, "secrt": SECRET})
    trail = trail_after([message(1, whole, {})], b'{"url": "https://example.com"}')[TRAIL]
    for secret in (SECRET, "word", "token", "Bearer", SECRET[6:]):
        assert secret not in trail


def test_no_secret_of_a_signature_is_in_a_trail() -> None:
    signature = {"header": "x-signature", "secret": "hush"}
    whole = msgspec.json.encode({"url": "https://example.com", "signature": signature})
    trail = trail_after([message(1, whole, {})], b'{"url": "https://example.com"}')[TRAIL]
    assert "signature" in trail
    assert "hush" not in trail


@pytest.mark.parametrize("member", ["proxy", "tls"])
def test_a_trail_shows_a_profile_by_its_name_only(member: str) -> None:
    url = "http://user:hush@proxy:3128"
    assert without_secrets(msgspec.json.encode({member: "office"})) == {member: "office"}
    assert without_secrets(msgspec.json.encode({member: None})) == {member: None}
    assert "hush" not in without_secrets(msgspec.json.encode({member: url}))[member]


def test_a_long_trail_loses_its_oldest_changes() -> None:
    raws = [msgspec.json.encode({"events": [str(each) * 1000]}) for each in range(8)]
    stored = put_one_after_the_other(list(raws))
    assert len(stored[-1].headers[TRAIL]) <= TRAIL_LENGTH_MAX
    assert [each.revision for each in recorded_before(stored[-1])] == [5, 6, 7]
    assert TRAIL not in trail_after([message(1, b'{"events": ["%s"]}' % (b"x" * 5000), {})], b"{}")


@pytest.mark.parametrize(
    "text",
    [
        "x", "{}", "[1]", '[{"revision": "a", "at": 1}]', "[" * 100_000,
        '[{"revision": 1, "at": 1, "members": {"events": ' + "[" * 300 + "]" * 300 + "}}]",
        '[{"revision": 1, "at": 1, "by": "' + "x" * TRAIL_LENGTH_MAX + '"}]',
    ],
)  # fmt: skip
def test_a_header_that_another_client_wrote_is_not_a_trail(text: str) -> None:
    assert recorded_before(message(2, b"{}", {TRAIL: text})) == []


def test_deep_nesting_gets_no_trail() -> None:
    nested = b'{"events": ' + b"[" * 300 + b"]" * 300 + b"}"
    assert without_secrets(nested) == {}
    wide = b'{"events": [' + b",".join([b"[]"] * 300) + b"]}"
    assert trail_after([message(1, wide, {})], b"{}") == {}
