"""Changes between a configuration and the one it replaces, member by member, without secrets.

Only effective values count: a default that is written out changes nothing. A member that is left out goes
back to its default, which may be an unintended loss.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.configuration.custom_signature import CustomSignature
from actors.configuration.parsing import rate_members
from actors.configuration.policy import Policy, Rate
from actors.configuration.secret_places import SECRET_PLACES
from angarium import logs
from angarium.escaping import visible

TEXT_LENGTH_MAX = 60
NO_VALUE = "none"
_BURST = ", burst "
_NESTED = ("adaptive", "retry", "offline", "signature", "transform")
_PSEUDONYM_KEY = "pseudonym_key"
_KEYS = tuple(".".join((name, *path)) for name, path in SECRET_PLACES.items() if not {"[]", "*"} & {*path})
"""Members that are secret themselves."""


class MemberChange(Struct, frozen=True, kw_only=True):
    """One member, and its old and new value in words; `lost` if no new value was given."""

    member: str
    old: str
    new: str
    lost: bool

    def __str__(self) -> str:
        return f"{self.member}: {self.old} → {self.new}"


def changes_between(before: dict[str, Any], after: dict[str, Any]) -> list[MemberChange]:
    """Lists what `after` changes, in the order of the members of `before`."""
    changes = [*_values(before, after), *_headers(before, after)]
    return changes + [each for each in (_secrets(before, after), _old_secrets(before, after)) if each]


def _values(before: dict[str, Any], after: dict[str, Any]) -> Iterator[MemberChange]:
    old, new = _leaves(before), _leaves(after)
    for member in old | new:
        before_value, after_value = (leaves.get(member, _DEFAULTS.get(member)) for leaves in (old, new))
        if before_value != after_value:
            texts = [_text(member, leaves) for leaves in (old, new)]
            if member in _KEYS and all(leaves.get(member) is not None for leaves in (old, new)):
                texts[1] = "another value"
            if member == "rate" and any(_BURST in each for each in texts):
                texts = [_with_burst(*each) for each in zip(texts, (before, after), strict=True)]
            # Another key would change all pseudonyms.
            lost = member not in new or (member == _PSEUDONYM_KEY and old.get(member) is not None)
            yield MemberChange(member=_cut(member), old=texts[0], new=texts[1], lost=lost)


def _leaves(members: dict[str, Any]) -> dict[str, Any]:
    """The members that are not objects, under their paths."""
    leaves: dict[str, Any] = {}
    for name, value in members.items():
        if name in _NESTED and isinstance(value, dict):
            leaves |= {f"{name}.{inner}": each for inner, each in value.items()}
        elif name == "rate":
            leaves[name] = _rate(value)
        elif name == "region":
            leaves[name] = [value] if isinstance(value, str) else value or None
        elif name not in ("secrets", "old_secrets", "headers"):
            leaves[name] = value
    return leaves


def _rate(value: Any) -> Any:
    """A rate as a text, the same one for equal rates; a value that is not a rate stays as it is.

    Rates that hold together are joined by `and`: a comma begins a burst.
    """
    if isinstance(value, list):
        rates = [_rate(each) for each in value]
        are_readable = rates and all(isinstance(each, str) for each in rates)
        return " and ".join(rates) if are_readable else rates or None
    rate = _parsed(value)
    if rate is None:
        return value
    usual = rate.burst_max == replace(rate, burst=None).burst_max
    text = f"{rate.limit!r}/{rate.per}".replace(".0/", "/") + ("" if usual else f"{_BURST}{rate.burst_max}")
    return text + ("" if rate.margin == 1 else f", margin {rate.margin:g}")


def _parsed(value: Any) -> Rate | None:
    members = rate_members(value) if isinstance(value, str) else value
    try:
        return msgspec.convert(members, Rate)
    except msgspec.ValidationError:
        return None


def _with_burst(text: str, members: dict[str, Any]) -> str:
    """The text of a rate with its burst, also if that is the usual one: the other rate has another."""
    rate = _parsed(members.get("rate"))
    return text if rate is None or _BURST in text else f"{text}{_BURST}{rate.burst_max}"


_DEFAULTS = _leaves(
    msgspec.json.decode(msgspec.json.encode(Policy(url="", signature=CustomSignature(header=""))))
) | {"signature.header": None, "signature": None}
_DEFAULTS |= {"transform.keep": None, "transform.drop": [], "transform.pseudonymize": []}


def _text(member: str, leaves: dict[str, Any]) -> str:
    if member not in leaves:
        default = _DEFAULTS.get(member)
        if default is not None:
            return f"{_written(default)} (default)"
        return "default" if member == "rate" else NO_VALUE
    if member not in _DEFAULTS or (member in _KEYS and leaves[member] is not None):
        return logs.HIDDEN  # An unknown member may be a secret with a misspelt name.
    value = leaves[member]
    return _written(logs.redact(value) if member == "url" and isinstance(value, str) else value)


def _written(value: Any) -> str:
    match value:
        case None | []:
            return NO_VALUE
        case str():
            text = value
        case [*each] if all(isinstance(one, str) for one in each):
            text = ", ".join(each)
        case _:
            text = msgspec.json.encode(value).decode()
    return _cut(text)


def _cut(text: str) -> str:
    return visible(text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…")


def _headers(before: dict[str, Any], after: dict[str, Any]) -> Iterator[MemberChange]:
    old, new = _by_cut(before), _by_cut(after)
    for name in old | new:
        member = _cut(f"headers.{name}")
        if name not in new:
            yield MemberChange(member=member, old=logs.HIDDEN, new=NO_VALUE, lost=True)
        elif name not in old:
            yield MemberChange(member=member, old=NO_VALUE, new=logs.HIDDEN, lost=False)
        elif old[name] != new[name]:
            yield MemberChange(member=member, old=logs.HIDDEN, new="another value", lost=False)


def _by_cut(members: dict[str, Any]) -> dict[str, Any]:
    headers = members.get("headers")
    return {name.lower(): value for name, value in headers.items()} if isinstance(headers, dict) else {}


def _secrets(before: dict[str, Any], after: dict[str, Any]) -> MemberChange | None:
    old, new = secrets_of(before), secrets_of(after)
    if old == new:
        return None
    added = sum(each not in old for each in new)
    text = _counted(new) + (f" ({added} new)" if old and added else "")
    return MemberChange(
        member="secrets", old=_counted(old), new=text, lost=any(each not in new for each in old)
    )


def _old_secrets(before: dict[str, Any], after: dict[str, Any]) -> MemberChange | None:
    old, new = (secrets_of(members, "old_secrets") for members in (before, after))
    if old == new:
        return None
    lost = any(each not in new for each in old)
    return MemberChange(member="old_secrets", old=_ends(old), new=_ends(new), lost=lost)


def _ends(old_secrets: list[Any]) -> str:
    """The number of old secrets, and the time until which the last of them signs."""
    ends = [str(each.get("until")) for each in old_secrets if isinstance(each, dict)]
    return _cut(f"{len(old_secrets)} until {max(ends)}") if ends else _counted(old_secrets)


def secrets_of(members: dict[str, Any], member: str = "secrets") -> list[Any]:
    """The secrets of a configuration, even if the rest of it is invalid."""
    found = members.get(member)
    return found if isinstance(found, list) else []


def _counted(secrets: list[Any]) -> str:
    return str(len(secrets)) if secrets else NO_VALUE
