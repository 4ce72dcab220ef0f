"""Words for what the console shows: each state has words, and not only a colour."""

import re

from actors.machine.scheduling.phases import Phase
from angarium import quantities
from angarium.operations.receiver_list.throughput import Bottleneck

PHASE_WORDS: dict[Phase, str] = {
    "idle": "idle",
    "active": "sending",
    "throttled": "throttled by the receiver",
    "backing_off": "backing off",
    "offline": "offline",
    "paused": "paused",
    "disabled": "disabled",
    "misconfigured": "misconfigured",
    "unverified": "unverified",
}
PHASE_TONES: dict[Phase, str] = {
    "idle": "good", "active": "good", "throttled": "warn", "backing_off": "warn", "paused": "calm",
    "unverified": "warn", "offline": "bad", "disabled": "bad", "misconfigured": "bad",
}  # fmt: skip
"""The looks of a phase, in addition to its words."""
LIMIT_WORDS: dict[Bottleneck, str] = {
    "rate": "its configured rate: raise the rate to go faster",
    "pace": "its learnt rate",
    "latency": "the time that the receiver takes to answer",
    "batch": "its batches wait for more events, as configured",
    "node": "our nodes, or its turn at a host that is down",
    "failure": "failures of the receiver",
    "throttle": "the receiver, which asked us to wait",
    "pause": "a pause: resume the receiver to continue",
    "unknown": "not known yet: the backlog is too young to tell",
}
NO_END = "no end is in sight"


def phase_words(phase: Phase | None) -> str:
    """The phase in words."""
    return "not known" if phase is None else PHASE_WORDS.get(phase, phase)


def phase_tone(phase: Phase | None) -> str:
    """The class of a phase, by which the stylesheet gives it a colour."""
    return "calm" if phase is None else PHASE_TONES.get(phase, "calm")


def reason(phase: Phase, why: str) -> str:
    """The reason for a phase, without the words of its badge: `until …: it answered 503`."""
    words = re.escape(phase.replace("_", " "))
    return re.sub(rf"(^|; ){words}(: | |$)", r"\1", why, count=1).removesuffix("; ")


def limit_words(limit: Bottleneck | None) -> str:
    """The limit of a receiver, in words."""
    return "nothing: no event is held up" if limit is None else LIMIT_WORDS.get(limit, limit)


def until_empty(waiting: int | None, empty_in_s: float | None) -> str:
    """The time until the backlog is empty, in words."""
    if waiting == 0:
        return "it is empty"
    if empty_in_s is None:
        return "not known" if waiting is None else NO_END
    return span(empty_in_s)


def span(seconds: float | None) -> str:
    """A time for people, with two units at most: `1 h 12 min`."""
    if seconds is None:
        return "not known"
    if seconds < 60:
        return quantities.seconds_text(seconds)
    minutes = round(seconds / 60)
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def number(value: int | float | None) -> str:
    """A number for people, with one decimal at most, or two digits below 1; `–` if it is not known."""
    if value is None or isinstance(value, int):
        return "–" if value is None else f"{value:,}"
    return f"{value:.2g}" if abs(value) < 1 else f"{value:,.1f}".removesuffix(".0")
