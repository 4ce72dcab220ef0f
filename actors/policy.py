"""A receiver's configuration, as its owner requested it: decoded, bounded and complete.

Every document goes through `parse`, which bounds what it may cost: a node signs, sends and matches by it for
each event, and must not be held up by it. The command line and the HTTP API are strict (unknown members are
refused). Nodes are lenient (unknown members, and headers that are never sent, are reported and ignored),
since a newer tool may have written the bucket.
"""

import math
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache, lru_cache
from itertools import islice
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from actors.errors import InvalidPolicy
from actors.members import allowed_values
from actors.members.custom_signature import CustomSignature, signature_problems
from actors.members.signing_secrets import secret_key

AGE_MAX_S = 432000.0
"""The longest time that any configuration lets an event wait."""
NESTED_MAX = 16
"""Depth of nested objects and arrays; no valid document comes near it."""
DOCUMENT_MAX = 64 << 10
"""Bytes of a configuration as it is stored; a larger one is not even decoded."""
SECRETS_MAX = 8
HEADERS_MAX = 64
HEADERS_LENGTH_MAX = 16 << 10
"""Characters of all header names and values together."""
PATTERNS_MAX = 256
PATTERN_LENGTH_MAX = 200
WILDCARDS_MAX = 4
"""Number of `*` that a pattern may contain: each multiplies the paths on which a type is searched."""
PROBLEMS_SHOWN_MAX = 16
PROBLEM_LENGTH_MAX = 400
"""Limits of the problems that are logged, shown and kept: 10,000 would cost more than the document."""
SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
PERIODS = {"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour"} | {
    name: name for name in SECONDS
}
"""Spellings of a period after the `/` of a rate."""
RESERVED = frozenset({
    "description", "labels", "region", "batch", "filter", "transform", "handshake",
    "adaptive",
})  # fmt: skip
DEFAULT_PROXY = "default"
"""The proxy of receivers that name none: the profile of that name, or no proxy where there is none."""

_RATE = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*/\s*([a-z]+)\s*\Z")
_RATE_EXAMPLE = 'write it as "10/second", or as {"limit": 10, "per": "second", "burst": 20}'
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}\Z")
_PROFILE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_SPACE_OR_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,4096}\Z")
_OWN_HEADER_PREFIXES = ("webhook-", "angarium-")
_HOP_BY_HOP = frozenset({"host", "content-length", "transfer-encoding", "connection", "te"})
_CONTENT = frozenset({"content-type", "traceparent", "tracestate", "user-agent"})
# RFC 9110, 7.6.1: they concern the connection, which Angarium manages. `expect` would make it wait for a 100.
_CONNECTION = frozenset({
    "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "trailer",
    "upgrade",
})  # fmt: skip
_TOKEN = r"(?:[A-Za-z0-9_-]+|\*)"
_WILDCARD = re.compile(rf"(?:{_TOKEN}(?:\.{_TOKEN}){{0,15}}|{_TOKEN}(?:\.{_TOKEN}){{0,14}}\.>|>)\Z")

_NO_HEADERS: dict[str, str] = {}
"""The headers of all policies without any; no policy is ever changed."""


class Rate(Struct, frozen=True, kw_only=True, gc=False):
    """A rate limit: `limit` attempts per `per`, at most `burst` at once (by default one second's worth)."""

    limit: Annotated[float, Meta(ge=1e-6, le=1e6)]
    per: Literal["second", "minute", "hour"] = "second"
    burst: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None

    @property
    def per_second(self) -> float:
        """Tokens per second."""
        return self.limit / SECONDS[self.per]

    @property
    def burst_max(self) -> int:
        """The number of attempts that may start at once."""
        return self.burst or max(1, math.ceil(self.per_second))


class Retry(Struct, frozen=True, kw_only=True, gc=False):
    """The rules for retrying a failed delivery, and for giving it up."""

    base_s: Annotated[float, Meta(ge=0.05, le=86400)] = 2
    cap_s: Annotated[float, Meta(ge=0.05, le=432000)] = 3600
    max_age_s: Annotated[float, Meta(ge=60, le=AGE_MAX_S)] = 172800
    max_attempts: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    rejected_attempts: Annotated[int, Meta(ge=1, le=1000)] = 5


class Offline(Struct, frozen=True, kw_only=True, gc=False):
    """Times without a success after which a receiver counts as offline, and as disabled."""

    after_s: Annotated[float, Meta(ge=1, le=864000)] = 300
    disable_after_s: Annotated[float, Meta(ge=60, le=8640000)] = 432000


class AlertSettings(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The limits of alerts about a receiver that a person has set; None: not set."""

    failing_after_s: Annotated[float, Meta(ge=1, le=864000)] | None = None
    behind_percent: Annotated[int, Meta(ge=1, le=100)] | None = None
    behind_after_s: Annotated[float, Meta(ge=1, le=AGE_MAX_S)] | None = None
    dead_letters_quiet_s: Annotated[float, Meta(ge=1, le=864000)] | None = None
    interval_s: Annotated[float, Meta(ge=1, le=864000)] | None = None


class AlertLimits(Struct, frozen=True, kw_only=True, gc=False):
    """The limits of alerts about a receiver.

    - `failing_after_s`: time without a success after which it is failing.
    - `behind_percent`, `behind_after_s`: it is behind if so much of its `backlog_max` is used, or if its
      oldest event is that old; no longer once it is below the half of both.
    - `dead_letters_quiet_s`: time without another dead letter after which the alert about them is over.
    - `interval_s`: time from one alert to the next of the same kind, at least.
    """

    failing_after_s: float = 60
    behind_percent: int = 80
    behind_after_s: float = 3600
    dead_letters_quiet_s: float = 3600
    interval_s: float = 300


USUAL_LIMITS = AlertLimits()


NO_ALERT_SETTINGS = AlertSettings()


@lru_cache(maxsize=256)
def alert_limits(*settings: AlertSettings) -> AlertLimits:
    """The limits by these settings, the first of which that sets one decides about it.

    Cached: most receivers have the same.
    """
    found = USUAL_LIMITS
    for each in reversed(settings):
        found = replace(found, **{name: value for name, value in asdict(each).items() if value is not None})
    return found


class OldSecret(Struct, frozen=True, kw_only=True, gc=False):
    """A secret that signs in addition to the newer ones, until a given time. Its repr shows nothing."""

    secret: str
    until: Annotated[datetime, Meta(tz=True)]

    def __repr__(self) -> str:
        return "OldSecret(…)"


class Policy(Struct, frozen=True, kw_only=True, gc=False):
    """One receiver's configuration with all defaults filled in. Its repr shows nothing: it holds secrets."""

    url: Annotated[str, Meta(min_length=1, max_length=4096)]
    events: tuple[str, ...] = (">",)
    secrets: tuple[str, ...] = ()
    old_secrets: tuple[OldSecret, ...] = ()
    order: Literal["strict", "relaxed"] = "strict"
    rate: Rate | None = None
    concurrency: Annotated[int, Meta(ge=1, le=256)] = 8
    timeout_s: Annotated[float, Meta(ge=0.1, le=60)] = 15
    retry: Retry = Retry()
    offline: Offline = Offline()
    dedup_window: Annotated[int, Meta(ge=16, le=4096)] = 256
    backlog_max: Annotated[int, Meta(ge=1)] = 1_000_000
    headers: dict[str, str] = field(default_factory=lambda: _NO_HEADERS)
    format: Literal["raw", "envelope", "cloudevents", "cloudevents-structured"] = "raw"
    signature: CustomSignature | None = None
    proxy: str | None = DEFAULT_PROXY
    tls: str | None = None
    paused: bool = False
    alerts: AlertSettings = NO_ALERT_SETTINGS

    def __repr__(self) -> str:
        return "Policy(…)"


_OBJECTS = (
    ("rate", Rate),
    ("retry", Retry),
    ("offline", Offline),
    ("alerts", AlertSettings),
    ("signature", CustomSignature),
)
"""The members that are objects."""


def rate_members(text: str) -> dict[str, Any] | None:
    """Limit and period of a rate that is written as `10/second`, `10/s` or the like; None for other texts."""
    match = _RATE.match(text)
    if match is None or match[2] not in PERIODS:
        return None
    return {"limit": float(match[1]), "per": PERIODS[match[2]]}


def parse(raw: bytes, *, strict: bool) -> tuple[Policy, list[str]]:
    """Decode a configuration and return it with its warnings.

    Raises InvalidPolicy, with one sentence for each field that cannot be used. Of many, the first are
    reported.
    """
    if len(raw) > DOCUMENT_MAX:
        remedy = "shorten it, or make several receivers of it"
        raise InvalidPolicy([f"configuration: is {len(raw)} bytes, at most {DOCUMENT_MAX}; {remedy}"])
    members = members_of(raw)
    unknown = _unknown_members(members)
    ignored = [_unknown(*each) for each in unknown[:PROBLEMS_SHOWN_MAX]]
    ignored += [path for path, _ in unknown[PROBLEMS_SHOWN_MAX:]]  # They are only counted.
    problems: list[str] = []
    policy = _convert(members, problems)
    problems += _too_many(policy)
    ignored += [f"headers.{name}: {why}" for name, why in _left_out(policy)]
    problems = [*(ignored if strict else ()), *problems, *_further_problems(policy)]
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
    if raw.count(b"[") + raw.count(b"{") > NESTED_MAX and not _is_flat(members, NESTED_MAX):
        raise InvalidPolicy([f"configuration: nested deeper than {NESTED_MAX}; check its brackets"])
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
            if each.name == "rate" and not isinstance(value, dict | None):
                if (rate := _rate(value)) is None:
                    problems.append(f"rate: {_not_a_rate(value)}; {_RATE_EXAMPLE}")
                    continue
                value = rate
            try:
                good[each.name] = msgspec.convert(value, each.type)
            except msgspec.ValidationError as error:
                path, sentence = allowed_values.problem(error, each.type)
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


def _rate(value: Any) -> dict[str, Any] | None:
    """The members of a rate that is written as a text; None for anything else."""
    return rate_members(value) if isinstance(value, str) else None


def _not_a_rate(value: Any) -> str:
    return f"{value[:40]!r} is not a rate" if isinstance(value, str) else "not a rate"


def _unknown_members(members: dict[str, Any]) -> list[tuple[str, frozenset[str]]]:
    """The paths of the unknown members, each with the names that are known there."""
    places: list[tuple[str, Any, type[msgspec.Struct]]] = [("", members, Policy)]
    for name, struct in _OBJECTS:
        places.append((f"{name}.", members.get(name), struct))
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


def _too_many(policy: Policy) -> Iterator[str]:
    """Yield a problem for each member over its limit."""
    if (count := len(policy.secrets)) > SECRETS_MAX:
        yield f"secrets: {count} of them, at most {SECRETS_MAX}; leave out the oldest, which come last"
    elif (count := count + len(policy.old_secrets)) > SECRETS_MAX:
        yield f"old_secrets: {count} together with secrets, at most {SECRETS_MAX}; leave out the oldest"
    if (count := len(policy.headers)) > HEADERS_MAX:
        yield f"headers: {count} of them, at most {HEADERS_MAX}; leave some out"
    length = sum(len(name) + len(value) for name, value in policy.headers.items())
    if length > HEADERS_LENGTH_MAX:
        yield f"headers: {length} characters of names and values, at most {HEADERS_LENGTH_MAX}; shorten them"
    if (count := len(policy.events)) > PATTERNS_MAX:
        remedy = "a wildcard (order.*, order.>) stands for many"
        yield f"events: {count} patterns, at most {PATTERNS_MAX}; {remedy}"


def _further_problems(policy: Policy) -> list[str]:
    """Yield the problems that no type can express."""
    problems = [*_url_problems(policy.url), *_header_problems(policy.headers)]
    problems += [f"signature.{each}" for each in _signature_problems(policy)]
    if policy.retry.cap_s < policy.retry.base_s:
        problems.append("retry.cap_s: must not be below retry.base_s")
    for member, name in (("proxy", policy.proxy), ("tls", policy.tls)):
        if name is not None and not is_profile_name(name):
            problems.append(f"{member}: must be the name of a profile, 1 to 64 of A-Z a-z 0-9 _ -, or null")
    for i, secret in enumerate(policy.secrets[:SECRETS_MAX]):
        if isinstance(why := secret_key(secret), str):
            problems.append(f"secrets[{i}]: {why}")
    for i, old in enumerate(policy.old_secrets[:SECRETS_MAX]):
        if isinstance(why := secret_key(old.secret), str):
            problems.append(f"old_secrets[{i}].secret: {why}")
    for i, pattern in enumerate(policy.events[:PATTERNS_MAX]):
        if not is_pattern(pattern):
            problems.append(f"events[{i}]: not a NATS wildcard over event types, such as order.* or order.>")
        elif (count := pattern.count("*")) > WILDCARDS_MAX:
            remedy = "write out more tokens, or end it with > (order.>)"
            problems.append(f"events[{i}]: {count} tokens are *, at most {WILDCARDS_MAX}; {remedy}")
    return problems


def is_pattern(text: str) -> bool:
    """True for a NATS wildcard over event types."""
    return len(text) <= PATTERN_LENGTH_MAX and _WILDCARD.match(text) is not None


def is_profile_name(text: str) -> bool:
    """True for a name that a profile of proxies or TLS can have."""
    return _PROFILE.match(text) is not None


def _url_problems(url: str) -> list[str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # The message of urllib is not used: it repeats user, password and the text in place of the port.
        return ["url: not well formed; write it as https://host[:port]/path"]
    if parts.scheme not in ("http", "https"):
        return ["url: must begin with https:// (or http:// if the operator allows it)"]
    if not parts.hostname:
        return ["url: has no host"]
    if "@" in parts.netloc:
        return ["url: must not contain a user or password; put credentials into headers"]
    if _SPACE_OR_CONTROL.search(url):
        return ["url: must not contain spaces or control characters; percent-encode them"]
    return ["url: port 0 cannot be used"] if port == 0 else []


def _signature_problems(policy: Policy) -> Iterator[str]:
    """Yield what is wrong with the custom signature, each problem with its member."""
    signature = policy.signature
    if signature is None:
        return
    yield from signature_problems(signature)
    taken = {name.lower() for name in policy.headers}
    for member, name in (("header", signature.header), ("timestamp_header", signature.timestamp_header)):
        if name is None:
            continue
        if not _HEADER_NAME.match(name):
            yield f"{member}: {name[:64]!r} is not an HTTP header name"
        elif _is_ours(name.lower(), policy.format):
            yield f"{member}: {name} is set by Angarium itself, or a header of the connection; choose another"
        elif name.lower() in taken:
            yield f"{member}: {name} is given twice; choose another, or leave it out of headers"
        taken.add(name.lower())
    if signature.secret is None:
        newest = secret_key(policy.secrets[0]) if policy.secrets else "missing"
        if not isinstance(newest, str) and newest.kind == "ed25519":
            yield "secret: missing, and the newest of secrets is no HMAC key; give the key to sign with"
        elif not policy.secrets:
            yield "secret: missing, and there are no secrets; give the key to sign with"


def is_sent(header: str, policy: Policy) -> bool:
    """True if a receiver's own header is sent: it is not if it would repeat or replace one of Angarium's."""
    name, signature = header.lower(), policy.signature
    if signature is not None and name in map(str.lower, signature.headers):
        return False
    return not _is_ours(name, policy.format)


def _is_ours(name: str, form: str) -> bool:
    """True for a header (in lower case) that no receiver may choose."""
    if name.startswith(_OWN_HEADER_PREFIXES) or _is_attribute(name, form):
        return True
    return name in _HOP_BY_HOP | _CONTENT | _CONNECTION


def _is_attribute(name: str, form: str) -> bool:
    """True for a header (in lower case) of that format."""
    return form == "cloudevents" and name.startswith("ce-")


def _left_out(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield the headers that would not be sent, and why."""
    seen: set[str] = set()
    for name in islice(policy.headers, HEADERS_MAX):
        if name.lower() in seen:
            yield name, "given twice (case does not matter); leave one out, or only the first is sent"
        seen.add(name.lower())
        if name.lower() in _CONTENT:
            yield name, "is set from the event or by Angarium, and would not be sent; leave it out"
        elif name.lower() in _CONNECTION:
            yield name, "is a header of the connection, and would not be sent; leave it out"
        elif _is_attribute(name.lower(), policy.format):
            yield name, "belongs to the format cloudevents, and would not be sent; leave it out"


def _header_problems(headers: dict[str, str]) -> list[str]:
    problems = []
    for name, value in islice(headers.items(), HEADERS_MAX):
        if not _HEADER_NAME.match(name):
            problems.append(f"headers: {name[:64]!r} is not an HTTP header name")
        elif name.lower().startswith(_OWN_HEADER_PREFIXES) or name.lower() in _HOP_BY_HOP:
            problems.append(f"headers.{name}: set by Angarium itself; leave it out")
        elif not _HEADER_VALUE.match(value):
            problems.append(f"headers.{name}: no CR, LF or control characters, 4096 characters at most")
    return problems
