"""Parsing of a receiver's configuration, as its owner requested it: decoded, bounded and complete.

Every document goes through `parse`, which bounds what it may cost: a node signs, sends and matches by it for
each event, and must not be held up by it. The command line and the HTTP API are strict: they refuse unknown
members, headers that are never sent, and a limit that is given twice. Nodes are lenient, and only report
these, since a newer tool may have written the bucket.
"""

import re
from functools import cache
from typing import Any

import msgspec

from actors import allowed_values
from actors.configuration.custom_signature import CustomSignature
from actors.configuration.policy import (
    RATES_MAX,
    SECONDS,
    Adaptive,
    AlertSettings,
    BatchLimits,
    Offline,
    OldSecret,
    Policy,
    Rate,
    Retry,
    several,
)
from actors.configuration.problems import (
    SECRETS_MAX,
    further_problems,
    members_over_limits,
    repeated_rates,
    unsent_headers,
)
from actors.errors import InvalidPolicy

DOCUMENT_LEVELS_MAX = 16
"""Depth of nested objects and arrays; no valid document comes near it."""
DOCUMENT_MAX = 64 << 10
"""Bytes of a configuration as it is stored; a larger one is not even decoded."""
PROBLEMS_SHOWN_MAX = 16
PROBLEM_LENGTH_MAX = 400
"""Limits of the problems that are logged, shown and kept: 10,000 would cost more than the document."""
PERIODS = {"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour"} | {
    name: name for name in SECONDS
}
"""Spellings of a period after the `/` of a rate."""
RESERVED = frozenset({
    "description", "labels",
})  # fmt: skip
_RATE = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*/\s*([a-z]+)\s*\Z")
_RATE_EXAMPLE = 'write it as "10/second", or as {"limit": 10, "per": "second", "burst": 20}'
_OBJECTS = (
    ("rate", Rate),
    ("batch", BatchLimits),
    ("retry", Retry),
    ("offline", Offline),
    ("adaptive", Adaptive),
    ("alerts", AlertSettings),
    ("signature", CustomSignature),
)
"""The members that are objects, in which nodes ignore unknown members."""


def rate_members(text: str) -> dict[str, Any] | None:
    """Limit and period of a rate in the form `10/second` or `10/s`; None for other texts."""
    match = _RATE.match(text)
    if match is None or match[2] not in PERIODS:
        return None
    return {"limit": float(match[1]), "per": PERIODS[match[2]]}


def parse(raw: bytes, *, strict: bool) -> tuple[Policy, list[str]]:
    """Decode a configuration and return it with its warnings.

    Raises InvalidPolicy, with one sentence for each field that cannot be used. Of many, the first are
    reported.
    """
    return parse_members(bounded_members(raw), strict=strict)


def bounded_members(raw: bytes) -> dict[str, Any]:
    """The members of a configuration that is not too large. Raises InvalidPolicy."""
    if len(raw) > DOCUMENT_MAX:
        remedy = "shorten it, or make several receivers of it"
        raise InvalidPolicy([f"configuration: is {len(raw)} bytes, at most {DOCUMENT_MAX}; {remedy}"])
    return members_of(raw)


def parse_members(members: dict[str, Any], *, strict: bool) -> tuple[Policy, list[str]]:
    """Convert the members of a configuration; see `parse`."""
    unknown = _unknown_members(members)
    ignored = [_unknown(*each) for each in unknown[:PROBLEMS_SHOWN_MAX]]
    ignored += [path for path, _ in unknown[PROBLEMS_SHOWN_MAX:]]  # They are only counted.
    problems: list[str] = []
    policy = _convert(members, problems)
    problems += members_over_limits(policy)
    ignored += [f"headers.{name}: {why}" for name, why in unsent_headers(policy)]
    ignored += repeated_rates(policy) if not problems else ()
    problems = [*(ignored if strict else ()), *problems, *further_problems(policy)]
    if problems:
        raise InvalidPolicy(_shortened(problems))
    return policy, _shortened(ignored)


def members_of(raw: bytes) -> dict[str, Any]:
    """The members of a configuration in JSON. Raises InvalidPolicy.

    A document nested so deeply that it can just be decoded could be neither written nor compared afterwards.
    """
    try:
        members: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPolicy([f"configuration: not valid JSON ({error})"]) from None
    if not isinstance(members, dict):
        raise InvalidPolicy(["configuration: must be a JSON object"])
    if raw.count(b"[") + raw.count(b"{") > DOCUMENT_LEVELS_MAX and not _is_flat(members, DOCUMENT_LEVELS_MAX):
        raise InvalidPolicy([f"configuration: nested deeper than {DOCUMENT_LEVELS_MAX}; check its brackets"])
    return members


def _is_flat(value: Any, nested_max: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is None or (nested_max > 0 and all(_is_flat(each, nested_max - 1) for each in inner))


def _shortened(sentences: list[str]) -> list[str]:
    """The first of the problems, each cut to a limit, and the number of the others."""
    shown = [each[:PROBLEM_LENGTH_MAX] for each in sentences[:PROBLEMS_SHOWN_MAX]]
    more = len(sentences) - len(shown)
    return [*shown, f"and {more} more of this kind"] if more else shown


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Cached lookup: an installation may have tens of thousands of configurations."""
    return msgspec.structs.fields(struct)


@cache
def _names(struct: type[msgspec.Struct]) -> frozenset[str]:
    """The names of the members in a document; cached like the fields."""
    return frozenset(each.encode_name for each in _fields(struct))


def _convert(members: dict[str, Any], problems: list[str]) -> Policy:
    """Convert member by member, so that one answer names every field; a wrong one takes its default."""
    good: dict[str, Any] = {"url": "https://unknown.invalid"}
    for each in _fields(Policy):
        if each.encode_name in members:
            value = members[each.encode_name]
            if each.name == "rates":
                good[each.name] = _rates(value, problems)
                continue
            if each.name == "region" and value == []:
                # It would mean all, but reads like none.
                problems.append("region: has no label; write null for events of all regions")
                continue
            if each.name == "region" and not isinstance(value, list):
                value = [] if value is None else [value]
            try:
                good[each.name] = msgspec.convert(value, each.type)
            except msgspec.ValidationError as error:
                path, sentence = allowed_values.conversion_problem(error, each.type)
                problems.append(f"{each.encode_name}{_with_header(path, value)}: {sentence}")
        elif each.required:
            problems.append(f"{each.encode_name}: required, but missing")
    return Policy(**good)


def _with_header(path: str, value: Any) -> str:
    """The path of a problem, with the name of the header whose value is no text: the decoder hides it."""
    if not path.startswith("[...]"):
        return path
    odd = next(name for name, content in value.items() if not isinstance(content, str))
    return f".{odd[:64]}"


def _rates(value: Any, problems: list[str]) -> tuple[Rate, ...]:
    """The rates of a member, which may be null, a rate, or a list of them."""
    if not isinstance(value, list):
        rate = None if value is None else _rate(value, "rate", problems)
        return () if rate is None else (rate,)
    if not value:
        problems.append("rate: has no limit in its list; write null for the default of the nodes")
    if len(value) > RATES_MAX:
        problems.append(f"rate: has {len(value)} limits, at most {RATES_MAX} are allowed; leave some out")
        return ()
    rates = [_rate(each, f"rate[{i}]", problems) for i, each in enumerate(value)]
    return several(tuple(each for each in rates if each is not None))


def _rate(value: Any, path: str, problems: list[str]) -> Rate | None:
    """One rate, as a text or as an object; None if it is none, which is added to the problems."""
    members = rate_members(value) if isinstance(value, str) else value
    if not isinstance(members, dict):
        what = f"{value[:40]!r} is not a rate" if isinstance(value, str) else "not a rate"
        problems.append(f"{path}: {what}; {_RATE_EXAMPLE}")
        return None
    try:
        return msgspec.convert(members, Rate)
    except msgspec.ValidationError as error:
        where, sentence = allowed_values.conversion_problem(error, Rate)
        problems.append(f"{path}{where}: {sentence}")
        return None


def _unknown_members(members: dict[str, Any]) -> list[tuple[str, frozenset[str]]]:
    """The paths of the unknown members, each with the names that are known there."""
    places: list[tuple[str, Any, type[msgspec.Struct]]] = [("", members, Policy)]
    for name, struct in _OBJECTS:
        places.append((f"{name}.", members.get(name), struct))
    rates = members.get("rate")
    for i, rate in enumerate(rates[:RATES_MAX] if isinstance(rates, list) else []):
        places.append((f"rate[{i}].", rate, Rate))
    old_secrets = members.get("old_secrets")
    for i, old in enumerate(old_secrets[:SECRETS_MAX] if isinstance(old_secrets, list) else []):
        places.append((f"old_secrets[{i}].", old, OldSecret))
    return [
        (path + name, _names(struct))
        for path, inner, struct in places if isinstance(inner, dict)
        for name in inner if name not in _names(struct)
    ]  # fmt: skip


def _unknown(path: str, known: frozenset[str]) -> str:
    if path in RESERVED:
        return f"{path}: reserved for a later version"
    return f"{path}: {allowed_values.unknown_member(path.rpartition('.')[2], known)}"
