"""Members of a configuration with secrets: neither its masked form nor the trail of changes shows them."""

from typing import Any

import msgspec
import pytest

from actors.configuration.secret_places import SECRET_MEMBERS
from angarium.operations.configurations.masks import masked
from streams.buckets.without_secrets import without_secrets

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
VALUES: dict[str, Any] = {
    "secrets": [SECRET],
    "old_secrets": [{"secret": SECRET, "until": "2030-01-01T00:00:00Z"}],
    "headers": {"x-key": SECRET},
    "signature": {"header": "x-signature", "secret": SECRET},
    "pseudonym_key": SECRET,
}


@pytest.mark.parametrize("member", sorted(SECRET_MEMBERS))
def test_a_secret_is_shown_neither_masked_nor_in_the_trail(member: str) -> None:
    members = {member: VALUES[member]}
    shown = (
        msgspec.json.encode(masked(members)),
        msgspec.json.encode(without_secrets(msgspec.json.encode(members))),
    )
    assert not [each for each in shown if SECRET.encode() in each]
    assert msgspec.json.decode(shown[1])[member] != VALUES[member]
