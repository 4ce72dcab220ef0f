"""Words for the rates of a receiver: the configured ones, those in force, and the learnt one."""

from typing import Any

from actors.configuration.policy import SECONDS
from angarium.console.rendering.labels import number
from angarium.operations.control_requests.inspection import StateDocument

LEARNT_WORDS = {"headers": "by its headers", "after_429": "after 429", "smart": "smart"}
"""Words for the member of `adaptive` that set a learnt rate."""


def configured_rates(live: StateDocument) -> str:
    """The rates that the configuration allows: `9 a second and 450 a minute`; empty if it has none."""
    return " and ".join(_rate(_allowed(each), each["per"]) for each in _buckets(live))


def burst_of(live: StateDocument) -> int:
    """The number of attempts that all rates allow at once; there is a rate."""
    return min(int(each["burst"]) for each in _buckets(live))


def rates_in_force(live: StateDocument) -> list[str]:
    """The rates in force, each with a note if it is learnt."""
    is_learnt = learnt_rate(live) is not None
    return [
        _rate(each["effective_limit"], each["per"])
        + (" (learnt)" if is_learnt and each["effective_limit"] < _allowed(each) else "")
        for each in _buckets(live)
    ]


def learnt_rate(live: StateDocument) -> str | None:
    """The learnt rate and what set it: `12.7 a second (smart)`; None if there is none."""
    pace: dict[str, Any] = live.get("pace") or {}
    per_second, limited_by = pace.get("effective_limit"), pace.get("limited_by")
    if per_second is None:
        return None
    return f"{_rate(per_second, 'second')} ({LEARNT_WORDS.get(str(limited_by), limited_by)})"


def _buckets(live: StateDocument) -> list[dict[str, Any]]:
    """The tokens of all limits, those of the shortest period first."""
    bucket: dict[str, Any] = live.get("bucket") or {}
    found = [bucket, *bucket.get("others", ())] if bucket else []
    return sorted(found, key=lambda each: SECONDS[each["per"]])


def _allowed(bucket: dict[str, Any]) -> float:
    """The limit with its margin, as exact as `effective_limit`."""
    return round(float(bucket["limit"] * bucket.get("margin", 1)), 6)


def _rate(limit: float, per: str) -> str:
    return f"{number(float(limit))} {'an' if per == 'hour' else 'a'} {per}"
