"""Configurations without possible secrets. Pure.

Members that may be secret (URL, secrets, headers, signature, unknown members) are kept as a fingerprint. It
is so short that it shows a change and nothing else: thousands of possible values share each fingerprint.

A secret that is sealed again, under another key, has other bytes and is still the same. So a configuration
with sealed members has their fingerprints in a header; they stay while the secrets do, and a process without
a key can see whether a secret has changed.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from actors.configuration.parsing import members_of
from actors.configuration.policy import Policy
from actors.configuration.problems import is_profile_name
from actors.configuration.secret_places import SECRET_MEMBERS
from actors.errors import InvalidPolicy

SAFE_MEMBERS = {each.encode_name for each in msgspec.structs.fields(Policy)} - SECRET_MEMBERS - {"url"}

_FINGERPRINT_BYTES = 2
_FINGERPRINT = re.compile(rf"[0-9a-f]{{{2 * _FINGERPRINT_BYTES}}}\Z")
_EMPTY: dict[str, Any] = {"secrets": [], "old_secrets": [], "headers": {}}


def without_secrets(raw: bytes, known: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The members of a configuration, with fingerprints; none if they cannot be read.

    - `known`: the fingerprints of sealed members, from its header.
    """
    sealed = known or {}
    try:
        members = members_of(raw)
    except InvalidPolicy:
        return {}
    return {
        name: value
        if name in SAFE_MEMBERS and not may_hold_secret(name, value)
        else sealed.get(name) or fingerprint(value)
        for name, value in members.items()
    }


def known_fingerprints(header: str) -> dict[str, str]:
    """The fingerprints in the header of a configuration; none if another client wrote something else there.

    The header is `<member>=<fingerprint>` for each sealed member, separated by spaces.
    """
    found = (each.partition("=") for each in header.split(" "))
    return {name: value for name, _, value in found if name in SECRET_MEMBERS and _FINGERPRINT.match(value)}


def fingerprints_header(known: Mapping[str, str]) -> str:
    """The text of the header with these fingerprints."""
    return " ".join(f"{name}={value}" for name, value in known.items())


def fingerprint(value: object) -> str:
    """A fingerprint of a member's value."""
    return blake2b(msgspec.json.encode(value), digest_size=_FINGERPRINT_BYTES).hexdigest()


def may_hold_secret(name: str, value: object) -> bool:
    """True if the URL of a proxy, with its password, may stand where a profile's name should be."""
    return name in ("proxy", "tls") and isinstance(value, str) and not is_profile_name(value)


def is_empty(name: str, shown: object) -> bool:
    """True if the member says what its absence says, such as `"secrets": []` of an unsigned receiver."""
    return name in _EMPTY and shown == fingerprint(_EMPTY[name])
