"""Problems of a configuration that no type can express: too many, too long, ill formed, or never sent.

Each problem is a sentence that begins with its member and ends with the remedy. A sealed text is no problem
here: it is judged once it is opened.
"""

import re
from collections.abc import Iterator
from itertools import islice
from urllib.parse import urlsplit

from actors.configuration.custom_signature import signature_problems
from actors.configuration.filters.compiling import NotAFilter
from actors.configuration.filters.evaluating import filter_of
from actors.configuration.policy import Policy
from actors.configuration.secret_places import is_sealed
from actors.configuration.signing_secrets import is_hmac_secret, secret_key
from actors.configuration.transform import pseudonym_key, transform_problems

SECRETS_MAX = 8
HEADERS_MAX = 64
HEADERS_LENGTH_MAX = 16 << 10
"""Characters of all header names and values together."""
PATTERNS_MAX = 256
PATTERN_LENGTH_MAX = 200
REGIONS_MAX = 16
REGION_TEXT = "1 to 32 of a-z 0-9 -"
WILDCARDS_MAX = 4
"""Number of `*` that a pattern may contain: each multiplies the paths on which a type is searched."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}\Z")
_PROFILE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_REGION = re.compile(r"[a-z0-9-]{1,32}\Z")
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


def members_over_limits(policy: Policy) -> Iterator[str]:
    """Yield a problem for each member over its limit."""
    if (count := len(policy.secrets)) > SECRETS_MAX:
        yield f"secrets: {count} of them, at most {SECRETS_MAX}; leave out the oldest, which come last"
    elif (count := count + len(policy.old_secrets)) > SECRETS_MAX:
        yield f"old_secrets: {count} together with secrets, at most {SECRETS_MAX}; leave out the oldest"
    if (count := len(policy.headers)) > HEADERS_MAX:
        yield f"headers: {count} of them, at most {HEADERS_MAX}; leave some out"
    length = sum(len(name) + len(value) for name, value in policy.headers.items() if not is_sealed(value))
    if length > HEADERS_LENGTH_MAX:
        yield f"headers: {length} characters of names and values, at most {HEADERS_LENGTH_MAX}; shorten them"
    if (count := len(policy.events)) > PATTERNS_MAX:
        remedy = "a wildcard (order.*, order.>) stands for many"
        yield f"events: {count} patterns, at most {PATTERNS_MAX}; {remedy}"
    if (count := len(policy.region)) > REGIONS_MAX:
        yield f"region: {count} labels, at most {REGIONS_MAX}; leave it out for events of all regions"


def further_problems(policy: Policy) -> list[str]:
    """Yield the problems that no type can express."""
    problems = [*_url_problems(policy.url), *_header_problems(policy.headers)]
    problems += [f"signature.{each}" for each in _signature_problems(policy)]
    problems += _transform_problems(policy)
    if policy.batch is not None and policy.format not in ("raw", "envelope"):
        problems.append("format: a batch is always an envelope; leave one of the two out")
    if policy.retry.cap_s < policy.retry.base_s:
        problems.append("retry.cap_s: must not be below retry.base_s")
    rate_min, rate_max = policy.adaptive.rate_min, policy.adaptive.rate_max
    if rate_max is not None and rate_max < rate_min:
        problems.append("adaptive.rate_max: must not be below adaptive.rate_min; raise it or lower that")
    for member, name in (("proxy", policy.proxy), ("tls", policy.tls)):
        if name is not None and not is_profile_name(name):
            problems.append(f"{member}: must be the name of a profile, 1 to 64 of A-Z a-z 0-9 _ -, or null")
    for i, secret in enumerate(policy.secrets[:SECRETS_MAX]):
        if isinstance(why := secret_key(secret), str) and not is_sealed(secret):
            problems.append(f"secrets[{i}]: {why}")
    for i, old in enumerate(policy.old_secrets[:SECRETS_MAX]):
        if isinstance(why := secret_key(old.secret), str) and not is_sealed(old.secret):
            problems.append(f"old_secrets[{i}].secret: {why}")
    if policy.handshake == "hmac" and not any(map(_may_be_hmac, policy.secrets[:SECRETS_MAX])):
        problems.append("handshake: hmac needs a whsec_ or whs512_ secret, which the receiver has as well")
    for i, pattern in enumerate(policy.events[:PATTERNS_MAX]):
        if not is_pattern(pattern):
            problems.append(f"events[{i}]: not a NATS wildcard over event types, such as order.* or order.>")
        elif (count := pattern.count("*")) > WILDCARDS_MAX:
            remedy = "write out more tokens, or end it with > (order.>)"
            problems.append(f"events[{i}]: {count} tokens are *, at most {WILDCARDS_MAX}; {remedy}")
    for label in policy.region[:REGIONS_MAX]:
        if not is_region(label):
            problems.append(f"region: {label[:64]!r} is no label; use {REGION_TEXT}")
    if policy.filter is not None:
        try:
            filter_of(policy.filter)
        except NotAFilter as error:
            problems.append(f"filter: {error}")
    return problems


def _may_be_hmac(secret: str) -> bool:
    return is_sealed(secret) or is_hmac_secret(secret)


def is_pattern(text: str) -> bool:
    """True for a NATS wildcard over event types."""
    return len(text) <= PATTERN_LENGTH_MAX and _WILDCARD.match(text) is not None


def is_region(text: str) -> bool:
    """True for the label of a region."""
    return _REGION.match(text) is not None


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
    taken = {_as_read(name) for name in policy.headers}
    for member, name in (("header", signature.header), ("timestamp_header", signature.timestamp_header)):
        if name is None:
            continue
        if not _HEADER_NAME.match(name):
            yield f"{member}: {name[:64]!r} is not an HTTP header name"
        elif _is_ours(_as_read(name), policy.format):
            yield f"{member}: {name} is set by Angarium itself, or a header of the connection; choose another"
        elif _as_read(name) in taken:
            yield f"{member}: {name} is given twice; choose another, or leave it out of headers"
        taken.add(_as_read(name))
    if signature.secret is None:
        newest = secret_key(policy.secrets[0]) if policy.secrets else "missing"
        if not isinstance(newest, str) and newest.kind == "ed25519":
            yield "secret: missing, and the newest of secrets is no HMAC key; give the key to sign with"
        elif not policy.secrets:
            yield "secret: missing, and there are no secrets; give the key to sign with"


def _transform_problems(policy: Policy) -> Iterator[str]:
    """Yield what is wrong with the transform and the key of its pseudonyms, each problem with its member."""
    key = policy.pseudonym_key
    if policy.transform is not None:
        yield from transform_problems(policy.transform, key)
    if key is not None and isinstance(why := pseudonym_key(key), str) and not is_sealed(key):
        yield f"pseudonym_key: {why}"


def is_sent(header: str, policy: Policy) -> bool:
    """True if a receiver's own header is sent: it is not if it would repeat or replace one of Angarium's."""
    name, signature = _as_read(header), policy.signature
    if signature is not None and name in map(_as_read, signature.headers):
        return False
    return not _is_ours(name, policy.format)


def _as_read(header: str) -> str:
    """The name of a header in lower case, with hyphens: CGI, WSGI and others read an underscore as one."""
    return header.lower().replace("_", "-")


def _is_ours(name: str, body_format: str) -> bool:
    """True for a header (as it is read) that no receiver may choose."""
    if name.startswith(_OWN_HEADER_PREFIXES) or _is_attribute(name, body_format):
        return True
    return name in _HOP_BY_HOP | _CONTENT | _CONNECTION


def _is_attribute(name: str, body_format: str) -> bool:
    """True for a header (as it is read) of that format."""
    return body_format == "cloudevents" and name.startswith("ce-")


def repeated_rates(policy: Policy) -> Iterator[str]:
    """Yield the limits of a list that another one repeats: one of them limits nothing."""
    for i, rate in enumerate(policy.rates):
        if (first := policy.rates.index(rate)) < i:
            yield f"rate[{i}]: is the same limit as rate[{first}]; leave one out"


def unsent_headers(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield the headers that would not be sent, and why."""
    seen: set[str] = set()
    for given in islice(policy.headers, HEADERS_MAX):
        name = _as_read(given)
        if given.lower() in seen:
            yield given, "given twice (case does not matter); leave one out, or only the first is sent"
        seen.add(given.lower())
        if name in _CONTENT:
            yield given, "is set from the event or by Angarium, and would not be sent; leave it out"
        elif name in _CONNECTION:
            yield given, "is a header of the connection, and would not be sent; leave it out"
        elif _is_attribute(name, policy.format):
            yield given, "belongs to the format cloudevents, and would not be sent; leave it out"


def _header_problems(headers: dict[str, str]) -> list[str]:
    problems = []
    for name, value in islice(headers.items(), HEADERS_MAX):
        if not _HEADER_NAME.match(name):
            problems.append(f"headers: {name[:64]!r} is not an HTTP header name")
        elif _as_read(name).startswith(_OWN_HEADER_PREFIXES) or _as_read(name) in _HOP_BY_HOP:
            problems.append(f"headers.{name}: set by Angarium itself; leave it out")
        elif not _HEADER_VALUE.match(value) and not is_sealed(value):
            problems.append(f"headers.{name}: no CR, LF or control characters, 4096 characters at most")
    return problems
