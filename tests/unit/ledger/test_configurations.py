"""Differences between configurations as the ledger keeps them."""

import pytest

from angarium.ledger.configurations import (
    UNKNOWN_SECRET,
    UNKNOWN_URL,
    differing_members,
    document_of,
    policy_of,
)
from streams.buckets.without_secrets import without_secrets

URL = b'{"url": "https://a.example", '
TEXT = URL + b'"rate": "5/second"}'

SECRET = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def _document(raw: bytes) -> str:
    return document_of(without_secrets(raw))


@pytest.mark.parametrize(
    ("before", "after", "members"),
    [
        (TEXT, URL + b'"rate": {"limit": 5, "per": "second"}}', []),
        (TEXT, URL + b'"rate": "5/second", "order": "strict"}', []),
        (TEXT, URL + b'"rate": "6/second"}', ["rate"]),
        (TEXT, URL + b'"rate": {"limit": 5, "per": "second", "burst": 1}}', ["rate"]),
        (TEXT, b'{"url": "https://b.example", "rate": "5/second"}', ["url"]),
        (TEXT, URL + b'"rate": "5/second", "secrets": [], "old_secrets": [], "headers": {}}', []),
        (TEXT, URL + b'"rate": "5/second", "secrets": ["whsec_a"]}', ["secrets"]),
        (
            URL + b'"handshake": "hmac", "secrets": ["%b"]}' % SECRET,
            URL + b'"handshake": "hmac", "order": "strict", "secrets": ["%b"]}' % SECRET,
            [],
        ),
        (None, TEXT, ["rate", "url"]),
        (b"{", TEXT, ["rate", "url"]),
    ],
)
def test_members_written_in_another_way_are_not_a_change(
    before: bytes | None, after: bytes, members: list[str]
) -> None:
    assert differing_members(None if before is None else _document(before), _document(after)) == members


def test_a_configuration_with_a_handshake_by_hmac_is_read_without_its_secrets() -> None:
    raw = URL + b'"handshake": "hmac", "order": "relaxed", "secrets": ["%b"]}' % SECRET
    policy = policy_of(_document(raw))
    assert policy is not None
    assert (policy.handshake, policy.order) == ("hmac", "relaxed")
    assert (policy.url, policy.secrets) == (UNKNOWN_URL, (UNKNOWN_SECRET,))
