"""Hides possible secrets in a receiver's configuration, and restores them when it is put again.

No secret and no header can be `…`, so a mask is never a value. The output of `receiver get` can be changed
and put again, and hidden values stay as they are stored.
"""

from datetime import datetime
from typing import Any

import msgspec

from actors.policy import Policy
from angarium.logs import HIDDEN
from angarium.operations.failures import OperationError

_SHOWN = {each.encode_name for each in msgspec.structs.fields(Policy)} - {
    "secrets", "old_secrets", "headers",
}  # fmt: skip


def masked(members: dict[str, Any]) -> dict[str, Any]:
    """The members without secrets, values of headers, and unknown members: they may be misspelt."""
    return {name: value if name in _SHOWN else _masked(name, value) for name, value in members.items()}


def _masked(name: str, value: Any) -> Any:
    match value:
        case list() if name == "old_secrets":
            return [_old_masked(each) for each in value]
        case dict():
            return dict.fromkeys(value, HIDDEN)
        case list():
            return [HIDDEN] * len(value)
        case _:
            return HIDDEN


def _old_masked(old: Any) -> Any:
    """An old secret with its end, if that can be nothing else."""
    match old:
        case {"secret": _, "until": str() as until, **more} if not more and _is_instant(until):
            return {"secret": HIDDEN, "until": until}
        case _:
            return HIDDEN


def _is_instant(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def unmasked(name: str, members: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """The members, with the stored values instead of masks. Raises `OperationError`."""
    filled = dict(members)
    if isinstance(secrets := members.get("secrets"), list) and HIDDEN in secrets:
        filled["secrets"] = _secrets(name, secrets, stored.get("secrets"))
    if isinstance(old_secrets := members.get("old_secrets"), list) and any(map(_is_masked, old_secrets)):
        filled["old_secrets"] = _old_secrets(name, old_secrets, stored.get("old_secrets"))
    if isinstance(headers := members.get("headers"), dict) and HIDDEN in headers.values():
        filled["headers"] = _headers(name, headers, stored.get("headers"))
    return filled


def _secrets(name: str, secrets: list[Any], stored: Any) -> list[Any]:
    """The secrets behind the masks: one for each, since among several one mask could mean any."""
    before = stored if isinstance(stored, list) else []
    masks = secrets.count(HIDDEN)
    if masks != len(before):
        given = "1 is given" if masks == 1 else f"{masks} are given"
        why = f"; {given} and {name} has {len(before)}; leave secrets out to keep them"
        if not before:
            why = f", but none is stored for {name}: leave secrets out to get a new one"
        raise OperationError("invalid", f"secrets: {HIDDEN} stands for a stored secret{why}")
    rest = iter(before)
    return [next(rest) if each == HIDDEN else each for each in secrets]


def _is_masked(old: Any) -> bool:
    return old == HIDDEN or (isinstance(old, dict) and old.get("secret") == HIDDEN)


def _old_secrets(name: str, old_secrets: list[Any], stored: Any) -> list[Any]:
    """The old secrets behind the masks, one for each; their ends may be others."""
    before = stored if isinstance(stored, list) else []
    masks = sum(map(_is_masked, old_secrets))
    if masks != len(before):
        raise OperationError(
            "invalid",
            f"old_secrets: {HIDDEN} stands for a stored secret; {masks} are given and {name} has "
            f"{len(before)}; leave old_secrets out to keep them",
        )
    rest = iter(before)
    return [_with_secret(each, next(rest)) if _is_masked(each) else each for each in old_secrets]


def _with_secret(entry: Any, before: Any) -> Any:
    if isinstance(entry, dict) and isinstance(before, dict):
        return entry | {"secret": before.get("secret")}
    return before


def _headers(name: str, headers: dict[str, Any], stored: Any) -> dict[str, Any]:
    before = {key.lower(): value for key, value in stored.items()} if isinstance(stored, dict) else {}
    for key, value in headers.items():
        if value == HIDDEN and key.lower() not in before:
            raise OperationError(
                "invalid",
                f"headers.{key}: {HIDDEN} stands for a stored value, and {name} has no such header; "
                "write the value itself",
            )
    return {key: before[key.lower()] if value == HIDDEN else value for key, value in headers.items()}
