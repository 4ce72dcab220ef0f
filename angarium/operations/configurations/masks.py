"""Hides possible secrets in a receiver's configuration, and restores them when it is put again.

No secret and no header can be `…`, so a mask is never a value. In the place of a secret that has a public key
stands that key. The output of `receiver get` can be changed and put again, and hidden values stay as they are
stored.
"""

from datetime import datetime
from typing import Any

import msgspec

from actors.configuration.custom_signature import CustomSignature
from actors.configuration.policy import Policy
from actors.configuration.secret_places import SECRET_MEMBERS
from actors.configuration.signing_secrets import PUBLIC_PREFIX
from angarium.delivery.signing import public_key
from angarium.logs import HIDDEN
from angarium.operations.failures import OperationError
from streams.buckets.without_secrets import may_hold_secret

_SHOWN = {each.encode_name for each in msgspec.structs.fields(Policy)} - SECRET_MEMBERS
_SIGNATURE_SHOWN = {each.encode_name for each in msgspec.structs.fields(CustomSignature)} - {"secret"}


def masked(members: dict[str, Any]) -> dict[str, Any]:
    """The members without secrets, values of headers, and unknown members: they may be misspelt."""
    return {
        name: value if name in _SHOWN and not may_hold_secret(name, value) else _masked(name, value)
        for name, value in members.items()
    }


def _masked(name: str, value: Any) -> Any:
    match value:
        case list() if name == "old_secrets":
            return [_old_masked(each) for each in value]
        case list() if name == "secrets":
            return list(map(_secret_masked, value))
        case dict() if name == "signature":
            return {inner: each if inner in _SIGNATURE_SHOWN else HIDDEN for inner, each in value.items()}
        case dict():
            return dict.fromkeys(value, HIDDEN)
        case list():
            return [HIDDEN] * len(value)
        case _:
            return HIDDEN


def _secret_masked(secret: Any) -> str:
    """The public key that belongs to the secret, if it has one."""
    return public_key(_text(secret)) or HIDDEN


def _old_masked(old: Any) -> Any:
    """An old secret with its end, if that can be nothing else."""
    match old:
        case {"secret": secret, "until": str() as until, **more} if not more and _is_instant(until):
            return {"secret": _secret_masked(secret), "until": until}
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
    if isinstance(secrets := members.get("secrets"), list) and any(map(_is_mask, secrets)):
        filled["secrets"] = _secrets(name, secrets, stored.get("secrets"))
    if isinstance(old_secrets := members.get("old_secrets"), list) and any(map(_is_masked, old_secrets)):
        filled["old_secrets"] = _old_secrets(name, old_secrets, stored.get("old_secrets"))
    if isinstance(headers := members.get("headers"), dict) and HIDDEN in headers.values():
        filled["headers"] = _headers(name, headers, stored.get("headers"))
    if isinstance(signature := members.get("signature"), dict) and signature.get("secret") == HIDDEN:
        filled["signature"] = _signature(name, signature, stored.get("signature"))
    if members.get("pseudonym_key") == HIDDEN:
        filled["pseudonym_key"] = _pseudonym_key(name, stored)
    return filled


def _is_mask(secret: Any) -> bool:
    return isinstance(secret, str) and (secret == HIDDEN or secret.startswith(PUBLIC_PREFIX))


def _is_masked(old: Any) -> bool:
    return _is_mask(old.get("secret") if isinstance(old, dict) else old)


def _secrets(name: str, secrets: list[Any], stored: Any) -> list[Any]:
    """The secrets behind the masks: one for each, since among several one mask could mean any."""
    named, rest = _named(stored, secrets)
    masks = secrets.count(HIDDEN)
    if masks and masks != len(rest):
        given = "1 is given" if masks == 1 else f"{masks} are given"
        why = f"; {given} and {name} has {len(rest)}; leave secrets out to keep them"
        if not rest:
            why = f", but none is stored for {name}: leave secrets out to get a new one"
        raise OperationError("invalid", f"secrets: {HIDDEN} stands for a stored secret{why}")
    others = iter(rest)
    return [next(others) if each == HIDDEN else named.get(each, each) for each in secrets]


def _old_secrets(name: str, old_secrets: list[Any], stored: Any) -> list[Any]:
    """The old secrets behind the masks, one for each; their ends may be others."""
    given = [_text(each) if _is_masked(each) else "" for each in old_secrets]
    named, rest = _named(stored, given)
    masks = given.count(HIDDEN)
    if masks and masks != len(rest):
        raise OperationError(
            "invalid",
            f"old_secrets: {HIDDEN} stands for a stored secret; {masks} are given and {name} has "
            f"{len(rest)}; leave old_secrets out to keep them",
        )
    others = iter(rest)
    filled = list[Any]()
    for each, key in zip(old_secrets, given, strict=True):
        if key == HIDDEN:
            filled.append(_with_secret(each, next(others)))
        else:
            filled.append(_with_secret(each, named[key]) if key in named else each)
    return filled


def _named(stored: Any, given: list[Any]) -> tuple[dict[Any, Any], list[Any]]:
    """The stored secrets that are given by their public keys, by these, and the others."""
    named, rest = dict[Any, Any](), list[Any]()
    for each in stored if isinstance(stored, list) else []:
        key = public_key(_text(each))
        if key is not None and key in given:
            named[key] = each
        else:
            rest.append(each)
    return named, rest


def _text(secret: Any) -> str:
    """The text of a secret or of an old secret."""
    text = secret.get("secret") if isinstance(secret, dict) else secret
    return text if isinstance(text, str) else ""


def _with_secret(entry: Any, before: Any) -> Any:
    if isinstance(entry, dict) and isinstance(before, dict):
        return entry | {"secret": before.get("secret")}
    return before


def _signature(name: str, signature: dict[str, Any], stored: Any) -> dict[str, Any]:
    if not isinstance(stored, dict) or "secret" not in stored:
        raise OperationError(
            "invalid",
            f"signature.secret: {HIDDEN} stands for the stored key, and {name} has none; write the key",
        )
    return signature | {"secret": stored["secret"]}


def _pseudonym_key(name: str, stored: dict[str, Any]) -> Any:
    if "pseudonym_key" not in stored:
        raise OperationError(
            "invalid",
            f"pseudonym_key: {HIDDEN} stands for the stored key, and {name} has none; leave it out",
        )
    return stored["pseudonym_key"]


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
