"""Configurations of receivers without their secrets, and the differences between them. Pure.

Members that may be secret (URL, secrets, headers, unknown members) are kept as a fingerprint. It is so short
that it shows a change and nothing else: thousands of possible values have the same one.
"""

from hashlib import blake2b
from typing import Any

import msgspec

from actors.errors import InvalidPolicy
from actors.policy import Policy, members_of, parse

UNKNOWN_URL = "https://unknown.invalid/"
"""Stands for the URL, which is not kept."""
SHOWN = frozenset(
    {each.encode_name for each in msgspec.structs.fields(Policy)}
    - {"url", "secrets", "old_secrets", "headers"}
)


def document_of(raw: bytes) -> str:
    """The configuration as the ledger keeps it."""
    try:
        members = members_of(raw)
    except InvalidPolicy:
        return "{}"
    kept = {name: value if name in SHOWN else _fingerprint(value) for name, value in members.items()}
    return msgspec.json.encode(kept).decode()


def changed(before: str | None, after: str) -> list[str]:
    """The members that differ, in alphabetical order; all of them where there was no configuration."""
    old: dict[str, Any] = {} if before is None else msgspec.json.decode(before)
    new: dict[str, Any] = msgspec.json.decode(after)
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def policy_of(document: str | None) -> Policy | None:
    """The policy in such a document, with a made-up URL; None if it has none that can be used."""
    if document is None:
        return None
    shown = {name: value for name, value in msgspec.json.decode(document).items() if name in SHOWN}
    try:
        return parse(msgspec.json.encode(shown | {"url": UNKNOWN_URL}), strict=False)[0]
    except InvalidPolicy:
        return None


def _fingerprint(value: object) -> str:
    return blake2b(msgspec.json.encode(value), digest_size=2).hexdigest()
