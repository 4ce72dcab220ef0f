"""The functions that a filter may call: those of JMESPath that build no text, and no array but of members.

A filter needs no other. Each takes steps in proportion to the values that it looks at.
"""

import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from msgspec import Struct

from actors.configuration.filters.values import is_equal, is_number, kind_of
from actors.configuration.filters.work import (
    BITS_A_STEP,
    CHARACTERS_A_STEP,
    COMPARED_A_STEP,
    STEPS_A_PAIR,
    FilterFailed,
    Work,
)

NUMBER_LENGTH_MAX = 64
"""Characters of the longest text that `to_number` reads."""
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")


class Function(Struct, frozen=True):
    """A function of JMESPath. `arguments`: how many it takes; `more`: it takes any number more."""

    call: Callable[[Work, list[Any]], Any]
    arguments: int = 1
    more: bool = False


def _refuse(name: str, value: Any, wanted: str) -> NoReturn:
    raise FilterFailed(f"{name}() takes {wanted}, not {kind_of(value)}")


def _number(name: str, value: Any) -> Any:
    return value if is_number(value) else _refuse(name, value, "a number")


def _text(name: str, value: Any) -> str:
    return value if isinstance(value, str) else _refuse(name, value, "a string")


def _object(name: str, value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else _refuse(name, value, "an object")


def _numbers(name: str, work: Work, value: Any) -> list[Any]:
    if not isinstance(value, list):
        _refuse(name, value, "an array of numbers")
    work.spend(len(value))
    for each in value:
        if not is_number(each):
            _refuse(name, each, "an array of numbers")
        if type(each) is int and (bits := each.bit_length()) > BITS_A_STEP:
            work.spend(bits // BITS_A_STEP)
    return value


def _finite(name: str, value: Any) -> Any:
    number = _number(name, value)
    return number if math.isfinite(number) else _refuse(name, value, "a finite number")


def _average(work: Work, given: list[Any]) -> float | None:
    numbers = _numbers("avg", work, given[0])
    return sum(numbers) / len(numbers) if numbers else None


def _contains(work: Work, given: list[Any]) -> bool:
    where, what = given
    if isinstance(where, str):
        work.spend(len(where) // CHARACTERS_A_STEP)
        if not isinstance(what, str):
            return False
        work.spend(_compared(len(where), len(what)) // COMPARED_A_STEP)
        return what in where
    if not isinstance(where, list):
        _refuse("contains", where, "a string or an array")
    work.spend(len(where) * STEPS_A_PAIR)
    return any(is_equal(each, what, work) for each in where)


def _compared(length: int, wanted: int) -> int:
    """Characters that CPython may compare beyond one pass: its `fastsearch.h` chooses how to search."""
    is_simple = wanted < 6 or length < 2_500 or (wanted < 100 and length < 30_000)
    return max(0, length - wanted + 1) * wanted if is_simple and wanted > 1 else 0


def _length(_: Work, given: list[Any]) -> int:
    value = given[0]
    if not isinstance(value, str | list | dict):
        _refuse("length", value, "a string, an array or an object")
    return len(value)


def _extreme(name: str, choose: Callable[[list[Any]], Any]) -> Callable[[Work, list[Any]], Any]:
    def find(work: Work, given: list[Any]) -> Any:
        values = given[0]
        if not isinstance(values, list):
            _refuse(name, values, "an array")
        if not values:
            return None
        work.spend(len(values))
        if not isinstance(values[0], str):
            return choose(_numbers(name, work, values))
        work.spend(sum(len(_text(name, each)) for each in values) // CHARACTERS_A_STEP)
        return choose(values)

    return find


def _not_null(_: Work, given: list[Any]) -> Any:
    return next((each for each in given if each is not None), None)


def _to_number(_: Work, given: list[Any]) -> Any:
    value = given[0]
    if is_number(value):
        return value
    is_text = isinstance(value, str) and len(value) <= NUMBER_LENGTH_MAX and _NUMBER.match(value)
    if not is_text:
        return None
    return int(value) if value.lstrip("-").isdigit() else float(value)


def _keys(work: Work, given: list[Any]) -> list[str]:
    members = _object("keys", given[0])
    work.spend(len(members))
    return list(members)


def _values(work: Work, given: list[Any]) -> list[Any]:
    members = _object("values", given[0])
    work.spend(len(members))
    return list(members.values())


def _begins(work: Work, given: list[Any]) -> bool:
    text, part = _text("starts_with", given[0]), _text("starts_with", given[1])
    work.spend(len(part) // CHARACTERS_A_STEP)
    return text.startswith(part)


def _ends(work: Work, given: list[Any]) -> bool:
    text, part = _text("ends_with", given[0]), _text("ends_with", given[1])
    work.spend(len(part) // CHARACTERS_A_STEP)
    return text.endswith(part)


FUNCTIONS: dict[str, Function] = {
    "abs": Function(lambda _, given: abs(_number("abs", given[0]))),
    "avg": Function(_average),
    "ceil": Function(lambda _, given: math.ceil(_finite("ceil", given[0]))),
    "contains": Function(_contains, 2),
    "ends_with": Function(_ends, 2),
    "floor": Function(lambda _, given: math.floor(_finite("floor", given[0]))),
    "keys": Function(_keys),
    "length": Function(_length),
    "max": Function(_extreme("max", max)),
    "min": Function(_extreme("min", min)),
    "not_null": Function(_not_null, more=True),
    "starts_with": Function(_begins, 2),
    "sum": Function(lambda work, given: sum(_numbers("sum", work, given[0]))),
    "to_number": Function(_to_number),
    "type": Function(lambda _, given: kind_of(given[0])),
    "values": Function(_values),
}
REFUSED = frozenset({
    "join", "map", "max_by", "merge", "min_by", "reverse", "sort", "sort_by", "to_array", "to_string",
})  # fmt: skip
"""The other functions of JMESPath."""
