"""The headers by which a receiver says how many requests are left, and until when.

- `RateLimit` and `RateLimit-Policy`: structured fields, in the form of the present IETF draft
  (draft-ietf-httpapi-ratelimit-headers, from 08 on), and in that of draft 07 (`limit=100, remaining=50,
  reset=30`).
- `RateLimit-Remaining` and `RateLimit-Reset` of earlier drafts, in seconds.
- `X-RateLimit-*` and `X-Rate-Limit-*`, which have no standard: the reset is in seconds from now, or a Unix
  time in seconds or milliseconds.

Everything else is garbage, and ignored: a header that is not understood must stop nothing. Only quotas of
requests count, and a reset is at most an hour away.
"""

import re
from email.utils import parsedate_to_datetime

from msgspec import Struct

from actors.machine.outcome import Answered

RESET_MAX_S = 3600.0
"""The farthest reset that is believed."""
HEADER_MAX = 1024
"""Characters of a header that is read; a longer one is ignored."""
LITTLE_PART, LITTLE_LEFT = 0.25, 10
"""Little is left: less than this part of the quota, or, if that is not known, no more than so many."""

_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?\Z", re.ASCII)
_FIRST_NUMBER = re.compile(r"\s*([0-9]{1,15})\s*(?:[,;]|\Z)", re.ASCII)
_BARE = (
    r"""-?[0-9]{1,15}(?:\.[0-9]{1,3})?|"(?:[ !#-\[\]-~]|\\["\\])*"|[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"""
)
_BARE += r"|:[A-Za-z0-9+/=]*:|\?[01]"
_PARAMETERS = rf"(?:[ ]*;[ ]*[a-z*][a-z0-9_.*-]*(?:=(?:{_BARE}))?)*+"
_MEMBER = re.compile(rf"[ \t]*({_BARE})(?:=({_BARE}))?({_PARAMETERS})[ \t]*(,|\Z)", re.ASCII)
_PARAMETER = re.compile(rf";[ ]*([a-z*][a-z0-9_.*-]*)(?:=({_BARE}))?", re.ASCII)
_EPOCH_MIN_S, _EPOCH_MIN_MS = 1e9, 1e12
_LEGACY = (
    ("ratelimit-remaining", "ratelimit-limit", ("ratelimit-reset",)),
    ("x-ratelimit-remaining", "x-ratelimit-limit", ("x-ratelimit-reset-after", "x-ratelimit-reset")),
    ("x-rate-limit-remaining", "x-rate-limit-limit", ("x-rate-limit-reset",)),
)
QUOTA_HEADERS = frozenset({"ratelimit", *(remaining for remaining, _, _ in _LEGACY)})
"""The headers that may say how much is left, of which an answer has one at least if it says so."""


class Quota(Struct, frozen=True, gc=False):
    """A quota: `left` requests in the next `reset_s` seconds, of `limit` in all, if that was said."""

    left: float
    reset_s: float
    limit: float | None = None

    @property
    def is_nearly_used_up(self) -> bool:
        """True if little is left."""
        if self.limit is None:
            return self.left <= LITTLE_LEFT
        return self.left < LITTLE_PART * self.limit


def quotas(answer: Answered, now: float) -> tuple[Quota, ...]:
    """The quotas in the headers of an answer that came at `now`, in the newest form that can be read."""
    if found := _structured(_value(answer, "ratelimit"), _value(answer, "ratelimit-policy")):
        return found
    for remaining, limit, resets in _LEGACY:
        left = _value(answer, remaining)
        if not _NUMBER.match(left):
            continue
        for reset in resets:
            if _NUMBER.match(text := _value(answer, reset)):
                reset_s = _until_reset(float(text), answer, now)
                return (Quota(float(left), reset_s, _first_number(_value(answer, limit))),)
    return ()


def _value(answer: Answered, name: str) -> str:
    value = (answer.header(name) or "").strip()
    return value if len(value) <= HEADER_MAX else ""


def _structured(text: str, policy: str) -> tuple[Quota, ...]:
    """The quotas of the field `RateLimit`, in the form of the present draft or in that of draft 07."""
    members = _members(text)
    if draft_07 := {name: _number(value) for name, value, _ in members if value}:
        left, reset_s = draft_07.get("remaining"), draft_07.get("reset")
        if left is None or reset_s is None:
            return ()
        return (Quota(left, min(reset_s, RESET_MAX_S), draft_07.get("limit")),)
    policies = {name: parameters for name, _, parameters in _members(policy)}
    found = list[Quota]()
    for name, _, parameters in members:
        known = policies.get(name, {})
        left, reset_s = _number(parameters.get("r", "")), _number(parameters.get("t", ""))
        if left is None or reset_s is None or known.get("qu", '"requests"') != '"requests"':
            continue
        found.append(Quota(left, min(reset_s, RESET_MAX_S), _number(known.get("q", ""))))
    return tuple(found)


def _members(text: str) -> list[tuple[str, str, dict[str, str]]]:
    """The members of a structured list or dictionary: name, value and parameters; none if it is malformed."""
    members, at = list[tuple[str, str, dict[str, str]]](), 0
    while at < len(text):
        match = _MEMBER.match(text, at)
        if match is None or (match[4] == "," and match.end() == len(text)):
            return []
        members.append((match[1], match[2] or "", dict(_PARAMETER.findall(match[3]))))
        at = match.end()
    return members


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.match(text) else None


def _first_number(text: str) -> float | None:
    """The number that a list begins with: earlier drafts put the windows behind it (`100, 100;w=60`)."""
    match = _FIRST_NUMBER.match(text)
    return float(match[1]) if match else None


def _until_reset(reset: float, answer: Answered, now: float) -> float:
    """Seconds until the reset; a Unix time is taken relative to the answer's own `Date`, if it has one."""
    if reset >= _EPOCH_MIN_MS:
        reset /= 1000
    if reset >= _EPOCH_MIN_S:
        reset -= _date(answer.header("date") or "", now)
    return min(max(0.0, reset), RESET_MAX_S)


def _date(text: str, now: float) -> float:
    """The time of an HTTP date in GMT; `now` if it is none."""
    if len(text) != len("Tue, 14 Nov 2023 22:13:20 GMT"):
        return now
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError, TypeError):
        return now
    return date.timestamp() if date.tzinfo else now
