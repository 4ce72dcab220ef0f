"""Configurations of receivers without their secrets, and the differences between them. Pure."""

from typing import Any

import msgspec

from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.errors import InvalidPolicy
from streams.buckets.without_secrets import SAFE_MEMBERS, is_empty

UNKNOWN_URL = "https://unknown.invalid/"
"""Stands for the URL, which is not kept."""
UNKNOWN_SECRET = "whsec_" + "A" * 32
"""Stands for the secrets, which are not kept: `"handshake": "hmac"` needs one."""


def document_of(members: dict[str, Any]) -> str:
    """The configuration as the ledger keeps it, from its members without secrets."""
    return msgspec.json.encode(members).decode()


def differing_members(before: str | None, after: str) -> list[str]:
    """The members that differ, in alphabetical order; all of them where there was no configuration.

    Members that are only written in another way are the same: `"5/second"` and an object with that rate,
    no secrets and none.
    """
    old = {} if before is None else _nonempty_members(before)
    new = _nonempty_members(after)
    was, now = _effective(before), _effective(after)
    return sorted(
        name
        for name in old.keys() | new.keys()
        if old.get(name) != new.get(name) and not (name in was and was[name] == now.get(name))
    )


def _nonempty_members(document: str) -> dict[str, Any]:
    """The members that say anything."""
    members: dict[str, Any] = msgspec.json.decode(document)
    return {name: value for name, value in members.items() if not is_empty(name, value)}


def _effective(document: str | None) -> dict[str, Any]:
    """The shown members as they apply, defaults included; none if the configuration cannot be used."""
    policy = policy_of(document)
    members: dict[str, Any] = {} if policy is None else msgspec.to_builtins(policy)
    if policy is not None:
        members["rate"] = [(each.per_second, each.burst_max) for each in policy.rates]
    return {name: value for name, value in members.items() if name in SAFE_MEMBERS}


def policy_of(document: str | None) -> Policy | None:
    """The policy in such a document, with a made-up URL and secret; None if it has none that can be used."""
    if document is None:
        return None
    shown = {name: value for name, value in msgspec.json.decode(document).items() if name in SAFE_MEMBERS}
    unknown = {"url": UNKNOWN_URL, "secrets": [UNKNOWN_SECRET]}
    try:
        return parse(msgspec.json.encode(shown | unknown), strict=False)[0]
    except InvalidPolicy:
        return None
