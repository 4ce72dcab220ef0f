"""The form of a configuration: a field for each common member, and one text in JSON with all others. Pure.

A member whose stored value does not fit its field, such as a rate with a margin, stays in the text. So a form
that is sent back as it was means the configuration that it was made from. What a field says is judged where
all configurations are judged: a text that is no number goes there as a text.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, assert_never

from msgspec import Struct

from actors.configuration.parsing import members_of, rate_members
from actors.errors import InvalidPolicy

Kind = Literal["text", "lines", "number", "choice", "rate"]
REST = "rest"
"""The field with all other members, as JSON."""
BURST = "rate.burst"
"""The field that goes with that of a single rate."""
RATE_MEMBERS = frozenset({"limit", "per", "burst"})
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
        if (text := form.texts.get(each.path, "").strip()) and each.path != BURST:
            value = _value(each, text, form.texts.get(BURST, "").strip())
            if each.part:
                members.setdefault(each.member, {})[each.part] = value
            else:
                members[each.member] = value
    if form.texts.get(BURST, "").strip() and not isinstance(members.get("rate"), dict):
        problems.append(f"{BURST}: goes with a single rate; for several, write the rates in JSON")
    try:
        rest = members_of((form.texts.get(REST, "").strip() or "{}").encode())
    except (InvalidPolicy, UnicodeEncodeError) as error:
        return members, [*problems, f"{REST}: {str(error).removeprefix('configuration: ')}"]
    both = [f"{name}: is in its field and in the text; keep one of them" for name in rest if name in members]
    return members | rest, problems + both


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
    """The texts of a rate, or of several; None if they have a margin, or bursts of their own."""
    if isinstance(value, list):
        found = [_rate_texts(each) for each in value]
        texts = [each["rate"] for each in found if each is not None and not each[BURST]]
        return {"rate": ", ".join(texts), BURST: ""} if len(texts) == len(value) > 1 else None
    if isinstance(value, str):
        return {"rate": value.strip(), BURST: ""} if rate_members(value) is not None else None
    if not isinstance(value, dict) or "limit" not in value or value.keys() - RATE_MEMBERS:
        return None
    limit, per = value["limit"], value.get("per", "second")
    text = f"{_number_text(limit)}/{per}"
    if isinstance(limit, bool) or rate_members(text) != {"limit": limit, "per": per}:
        return None
    burst = value.get("burst")
    is_whole = isinstance(burst, int) and not isinstance(burst, bool)
    return {"rate": text, BURST: str(burst) if is_whole else ""} if is_whole or burst is None else None


def _number_text(value: Any) -> str:
    return str(value).removesuffix(".0")


def _value(field: ConfigurationField, text: str, burst: str) -> Any:
    match field.kind:
        case "number":
            return _number(text)
        case "lines":
            return [line.strip() for line in text.splitlines() if line.strip()]
        case "rate":
            several = [each.strip() for each in text.split(",")]
            if len(several) > 1:
                return several
            read = rate_members(text)
            return text if read is None or not burst else read | {"burst": _number(burst)}
        case "text" | "choice":
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
    """Yields each field with its text."""
    for each in FIELDS:
        yield each, form.texts.get(each.path, "")
