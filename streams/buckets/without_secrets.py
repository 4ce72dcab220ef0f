"""Configurations without possible secrets. Pure.

Members that may be secret (URL, secrets, headers, signature, unknown members) are kept as a fingerprint. It
is so short that it shows a change and nothing else: thousands of possible values share each fingerprint.
"""

from hashlib import blake2b
from typing import Any

import msgspec

from actors.configuration.parsing import members_of
from actors.configuration.policy import SECRET_MEMBERS, Policy
from actors.configuration.problems import is_profile_name
from actors.errors import InvalidPolicy

SAFE_MEMBERS = {each.encode_name for each in msgspec.structs.fields(Policy)} - SECRET_MEMBERS - {"url"}

_EMPTY: dict[str, Any] = {"secrets": [], "old_secrets": [], "headers": {}}


def without_secrets(raw: bytes) -> dict[str, Any]:
    """The members of a configuration, with fingerprints; none if they cannot be read."""
    try:
        members = members_of(raw)
    except InvalidPolicy:
        return {}
    return {
        name: value if name in SAFE_MEMBERS and not may_hold_secret(name, value) else _fingerprint(value)
        for name, value in members.items()
    }


def may_hold_secret(name: str, value: object) -> bool:
    """True if the URL of a proxy, with its password, may be in the place of a profile's name."""
    return name in ("proxy", "tls") and isinstance(value, str) and not is_profile_name(value)


def is_empty(name: str, fingerprint: object) -> bool:
    """True if the member says what its absence says, such as `"secrets": []` of an unsigned receiver."""
    return name in _EMPTY and fingerprint == _fingerprint(_EMPTY[name])


def _fingerprint(value: object) -> str:
    return blake2b(msgspec.json.encode(value), digest_size=2).hexdigest()
