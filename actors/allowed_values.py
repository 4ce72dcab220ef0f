"""Values that a type allows, in words: for errors that tell people what to write instead."""

import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+|\.\.\.)\]")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]+)`")
LIKENESS_MIN = 0.6
COMPARED_LENGTH_MAX = 40
"""Length of the longest name that is compared with known ones, which takes time."""
NAMED_MAX = 8
"""Members of an object that a sentence lists."""
_TIME = "a time with its zone, such as 2026-01-31T12:00:00Z"


def conversion_problem(error: msgspec.ValidationError, kind: Any) -> tuple[str, str]:
    """The path below the value that did not convert to that type, and a sentence with what is allowed there.

    The path is empty, or begins with a dot or a bracket: `.limit`, `[0].until`.
    """
    text, _, rest = str(error).partition(" - at `$")
    path = rest.rstrip("`")
    if missing := _MISSING.match(text):
        return f"{path}.{missing[1]}", "required, but missing"
    if unknown := _UNKNOWN.match(text):
        return f"{path}.{unknown[1]}", unknown_member(unknown[1], _members(_at(_info(kind), path)))
    return path, f"must be {allowed(_at(_info(kind), path))}"


def unknown_member(name: str, known: Collection[str]) -> str:
    """The sentence about an unknown member, with the one that was meant, or a few that can be there."""
    if meant := closest(name, known):
        return f"unknown member; did you mean {meant}?"
    few = 0 < len(known) <= NAMED_MAX
    return f"unknown member; {f'only {_listed(sorted(known))} can be here' if few else 'check the spelling'}"


def closest(name: str, known: Collection[str]) -> str | None:
    """The known name that was probably meant by this one."""
    from difflib import get_close_matches

    compared = name if len(name) <= COMPARED_LENGTH_MAX else ""
    return next(iter(get_close_matches(compared, sorted(known), 1, LIKENESS_MIN)), None)


def _members(kind: inspect.Type) -> tuple[str, ...]:
    match _bare(kind):
        case inspect.StructType(fields=fields):
            return tuple(each.encode_name for each in fields)
        case _:
            return ()


@cache
def _info(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _at(kind: inspect.Type, path: str) -> inspect.Type:
    """The type at a path; that of its last known part, if the path leads elsewhere."""
    for name, _ in _STEP.findall(path):
        match _bare(kind):
            case inspect.StructType(fields=fields) if name:
                kind = next((each.type for each in fields if each.encode_name == name), kind)
            case inspect.VarTupleType(item_type=inner) | inspect.ListType(item_type=inner):
                kind = inner
            case inspect.DictType(value_type=inner):
                kind = inner
    return kind


def _bare(kind: inspect.Type) -> inspect.Type:
    """The type without its metadata, and without null."""
    match kind:
        case inspect.Metadata(type=inner):
            return _bare(inner)
        case inspect.UnionType(types=types):
            others = [each for each in types if not isinstance(each, inspect.NoneType)]
            return _bare(others[0]) if len(others) == 1 else kind
        case _:
            return kind


def allowed(kind: inspect.Type) -> str:
    """Say in words what a value of that type may be."""
    match _bare(kind):
        case inspect.UnionType(types=types):
            return " or ".join(allowed(each) for each in types if not isinstance(each, inspect.NoneType))
        case inspect.LiteralType(values=values):
            return _listed(list(map(str, values)))
        case inspect.IntType(ge=low, le=high):
            return f"a whole number{_span(low, high)}"
        case inspect.FloatType(ge=low, le=high):
            return f"a number{_span(low, high)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.DateTimeType():
            return _TIME
        case inspect.StructType(fields=fields):
            return f"an object with {', '.join(each.encode_name for each in fields)}"
        case inspect.DictType(value_type=inner):
            return f"an object whose values are {_several(inner)}"
        case (
            inspect.VarTupleType(item_type=inner, min_length=low)
            | inspect.ListType(item_type=inner, min_length=low)
        ):
            return f"a list of {_several(inner)}{', not empty' if low else ''}"
        case inspect.StrType(min_length=low, max_length=high) if low is not None or high is not None:
            return f"a string of {low or 0} to {high} characters" if high else "a string that is not empty"
        case _:
            return "a string"


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _several(kind: inspect.Type) -> str:
    match _bare(kind):
        case inspect.StructType():
            return "objects"
        case inspect.StrType():
            return "strings"
        case inner:
            return f"values, each {allowed(inner)}"


def _span(low: float | None, high: float | None) -> str:
    begins = "" if low is None else f" from {_number(low)}"
    return begins + ("" if high is None else f" to {_number(high)}")


def _number(value: float) -> str:
    """A bound without an exponent."""
    return str(int(value)) if value == int(value) else f"{value:f}".rstrip("0")
