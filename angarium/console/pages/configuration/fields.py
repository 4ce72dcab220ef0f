"""The form of a configuration: a field for each common member, and one text in JSON with all others. Pure.

A member whose stored value does not fit its field, such as rates with bursts of their own, stays in the text.
So a form that is sent back as it was means the configuration that it was made from. What a field says is
judged where all configurations are judged: a text that is no number goes there as a text.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from actors.configuration.parsing import members_of, rate_members
from actors.errors import InvalidPolicy

Kind = Literal["text", "lines", "number", "choice", "rate"]
REST = "rest"
"""The field with all other members, as JSON."""
BURST = "rate.burst"
"""The field that goes with that of a single rate."""
MARGIN = "rate.margin"
"""The field of the margin of all rates."""
RATES_BELOW = (
    "Its rates are in the JSON below: change them there, or remove them there and write others here."
)
RATE_MEMBERS = frozenset({"limit", "per", "burst", "margin"})
"""The members of a rate that has its field."""
_WHOLE = re.compile(r"-?[0-9]{1,15}\Z")
_PATH = re.compile(r"([A-Za-z_]+)(\.[A-Za-z_]+)?")


class ConfigurationField(Struct, frozen=True, kw_only=True):
    """A field: its member or the part of it, what it is called, and how it is filled in."""

    member: str
    part: str = ""
    label: str
    hint: str
    kind: Kind = "number"
    choices: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path of the value, as problems name it."""
        return f"{self.member}.{self.part}" if self.part else self.member


FIELDS = (
    ConfigurationField(member="url", label="URL", kind="text", hint="Where events are posted to."),
    ConfigurationField(
        member="events", label="Event types", kind="lines",
        hint="A pattern a line, such as order.created, order.* or order.>. Empty: all types.",
    ),
    ConfigurationField(
        member="filter", label="Filter", kind="text",
        hint="JMESPath over the body: only events for which it is true. Empty: all events.",
    ),
    ConfigurationField(
        member="rate", label="Rate", kind="rate",
        hint="Such as 10/second, or several: 10/second, 500/minute. Empty: the default of the installation.",
    ),
    ConfigurationField(
        member="rate", part="burst", label="Burst",
        hint="Attempts that may start at once, with a single rate.",
    ),
    ConfigurationField(
        member="rate", part="margin", label="Margin",
        hint="Share of each rate that is used, 0.1 to 1. Default: 1.",
    ),
    ConfigurationField(
        member="order", label="Order", kind="choice", choices=("strict", "relaxed"),
        hint="strict: one attempt at a time; relaxed: several. Default: strict.",
    ),
    ConfigurationField(
        member="concurrency", label="Attempts at a time", hint="In relaxed order, 1 to 256. Default: 8."
    ),
    ConfigurationField(
        member="format", label="Format", kind="choice",
        choices=("raw", "envelope", "cloudevents", "cloudevents-structured"),
        hint="raw is the body as published. Default: raw.",
    ),
    ConfigurationField(
        member="handshake", label="Handshake", kind="choice", choices=("none", "hmac", "cloudevents"),
        hint="The proof that it gives before it gets events. Default: none.",
    ),
    ConfigurationField(
        member="timeout_s", label="Timeout in seconds", hint="Of an attempt, 0.1 to 60. Default: 15."
    ),
    ConfigurationField(
        member="retry", part="base_s", label="Longest delay before the first retry, in seconds",
        hint="It doubles with each retry. Default: 2.",
    ),
    ConfigurationField(
        member="retry", part="cap_s", label="Longest delay before any retry, in seconds",
        hint="Default: 3600.",
    ),
    ConfigurationField(
        member="retry", part="max_age_s", label="Give an event up after, in seconds",
        hint="It is a dead letter then. Default: 172800, which is two days.",
    ),
    ConfigurationField(
        member="retry", part="max_attempts", label="Give an event up after, in attempts",
        hint="Default: 0, no limit.",
    ),
    ConfigurationField(
        member="retry", part="rejected_attempts", label="Attempts for an event that it rejects",
        hint="With 400, 409, 413, 415, 422 or 431. Default: 5.",
    ),
    ConfigurationField(
        member="backlog_max", label="Events that may wait",
        hint="The oldest beyond that become dead letters. Default: 1000000.",
    ),
)  # fmt: skip
MARGIN_FIELD = next(each for each in FIELDS if each.path == MARGIN)
PATHS = tuple(each.path for each in FIELDS)


class ConfigurationForm(Struct, frozen=True):
    """A form as it is filled in: the texts of its fields, and the revision that it was made from."""

    texts: Mapping[str, str]
    revision: int


def form_of(members: Mapping[str, Any], revision: int) -> ConfigurationForm:
    """The form of a configuration, whose secrets are masked."""
    rest, texts = dict(members), dict.fromkeys((*PATHS, REST), "")
    for member in {each.member: None for each in FIELDS}:
        if member in rest and (found := _texts(member, rest[member])) is not None:
            texts |= found
            del rest[member]
    return ConfigurationForm(texts | {REST: json_text(rest)}, revision)


def members_in(form: ConfigurationForm) -> tuple[dict[str, Any], list[str]]:
    """The members that a form asks for, and its own problems, each with its member."""
    members: dict[str, Any] = {}
    problems: list[str] = []
    for each in FIELDS:
        if (text := form.texts.get(each.path, "").strip()) and each.path not in (BURST, MARGIN):
            value = _rate(form, text) if each.kind == "rate" else _value(each, text)
            if each.part:
                members.setdefault(each.member, {})[each.part] = value
            else:
                members[each.member] = value
    if form.texts.get(BURST, "").strip() and not isinstance(members.get("rate"), dict):
        problems.append(f"{BURST}: goes with a single rate; for several, write the rates in JSON")
    if form.texts.get(MARGIN, "").strip() and "rate" not in members:
        problems.append(f"{MARGIN}: goes with a rate; write the margins of rates in JSON there")
    try:
        rest = _members_in_text(form)
    except (InvalidPolicy, UnicodeEncodeError) as error:
        return members, [*problems, f"{REST}: {str(error).removeprefix('configuration: ')}"]
    both = [f"{name}: is in its field and in the text; keep one of them" for name in rest if name in members]
    return members | rest, problems + both


def _members_in_text(form: ConfigurationForm) -> dict[str, Any]:
    """The members in the text. Raises InvalidPolicy, and UnicodeEncodeError."""
    return members_of((form.texts.get(REST, "").strip() or "{}").encode())


def by_field(problems: list[str]) -> dict[str, str]:
    """The problems by field; those of members without one are about the text, and keep their members."""
    found: dict[str, list[str]] = {}
    for each in problems:
        match = _PATH.match(each)
        places = (match[0], match[1]) if match else ()
        place = next((path for path in places if path in (*PATHS, REST)), REST)
        found.setdefault(place, []).append(each.removeprefix(f"{place}: "))
    return {path: "; ".join(sentences) for path, sentences in found.items()}


def json_text(members: Mapping[str, Any]) -> str:
    """The members as JSON for people, in which each character that does not print is an escape."""
    text = json.dumps(members, indent=2, ensure_ascii=False)
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def _texts(member: str, value: Any) -> dict[str, str] | None:
    """The texts of the fields of a member; None if its value does not fit them."""
    own = [each for each in FIELDS if each.member == member]
    if member == "rate":
        return _rate_texts(value)
    if len(own) == 1 and not own[0].part:
        text = _text(own[0], value)
        return None if text is None else {own[0].path: text}
    if not isinstance(value, dict) or not value or value.keys() - {each.part for each in own}:
        return None
    texts = {each.path: _text(each, value[each.part]) for each in own if each.part in value}
    fitting = {path: text for path, text in texts.items() if text is not None}
    return fitting if len(fitting) == len(texts) else None


def _text(field: ConfigurationField, value: Any) -> str | None:
    """The text from which the same value is read again; None if there is none."""
    match field.kind:
        case "number":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            text = _number_text(value) if is_number and _number(_number_text(value)) == value else ""
        case "lines":
            lines = value if isinstance(value, list) and all(map(_is_line, value)) else []
            text = "\n".join(lines)
        case "choice":
            text = value if value in field.choices else ""
        case "text":
            text = value if _is_line(value) else ""
        case "rate":
            return None
        case _:
            assert_never(field.kind)
    return text or None


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable() and value == value.strip()


def _rate_texts(value: Any) -> dict[str, str] | None:
    """The texts of a rate, or of several; None if they have bursts of their own, or different margins."""
    if isinstance(value, list):
        found = [_rate_texts(each) for each in value]
        texts = [each for each in found if each is not None and not each[BURST]]
        margins = {each[MARGIN] for each in texts}
        if len(texts) != len(value) or len(value) < 2 or len(margins) > 1:
            return None
        return {"rate": ", ".join(each["rate"] for each in texts), BURST: "", MARGIN: margins.pop()}
    if isinstance(value, str):
        return {"rate": value.strip(), BURST: "", MARGIN: ""} if rate_members(value) is not None else None
    if not isinstance(value, dict) or "limit" not in value or value.keys() - RATE_MEMBERS:
        return None
    limit, per = value["limit"], value.get("per", "second")
    text = f"{_number_text(limit)}/{per}"
    if isinstance(limit, bool) or rate_members(text) != {"limit": limit, "per": per}:
        return None
    burst, margin = value.get("burst"), value.get("margin")
    is_whole = isinstance(burst, int) and not isinstance(burst, bool)
    margin_text = "" if margin is None else _text(MARGIN_FIELD, margin)
    if margin_text is None or not (is_whole or burst is None):
        return None
    return {"rate": text, BURST: str(burst) if is_whole else "", MARGIN: margin_text}


def _number_text(value: Any) -> str:
    return str(value).removesuffix(".0")


def _rate(form: ConfigurationForm, text: str) -> Any:
    """The rate or the rates that a text means, with their burst and margin; others stay texts."""
    more = {path.partition(".")[2]: form.texts.get(path, "").strip() for path in (BURST, MARGIN)}
    given = {name: _number(each) for name, each in more.items() if each}
    several = [each.strip() for each in text.split(",")]
    if len(several) > 1:
        given.pop("burst", None)
    rates = [_with_members(each, given) for each in several]
    return rates if len(rates) > 1 else rates[0]


def _with_members(text: str, given: dict[str, Any]) -> Any:
    read = rate_members(text) if given else None
    return text if read is None else read | given


def _value(field: ConfigurationField, text: str) -> Any:
    match field.kind:
        case "number":
            return _number(text)
        case "lines":
            return [line.strip() for line in text.splitlines() if line.strip()]
        case "text" | "choice" | "rate":
            return text
        case _:
            assert_never(field.kind)


def _number(text: str) -> int | float | str:
    """The number in a text; the text itself if there is none, which is refused where all is judged."""
    if _WHOLE.match(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def shown_fields(form: ConfigurationForm) -> Iterator[tuple[ConfigurationField, str]]:
    """Yields each field with its text. Rates that do not fit their field are in the text, and it says so."""
    try:
        are_below = "rate" in _members_in_text(form)
    except (InvalidPolicy, UnicodeEncodeError):
        are_below = False
    for each in FIELDS:
        is_about_rates = are_below and each.kind == "rate"
        yield replace(each, hint=RATES_BELOW) if is_about_rates else each, form.texts.get(each.path, "")
