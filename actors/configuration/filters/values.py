"""JSON values as JMESPath sees them: what is true, equal, and less."""

from typing import Any

from actors.configuration.filters.work import (
    CHARACTERS_A_STEP,
    EXPRESSION_LEVELS_MAX,
    STEPS_A_CALL,
    STEPS_A_PAIR,
    TooCostly,
    Work,
)

_KINDS: dict[type, str] = {
    type(None): "null", bool: "boolean", int: "number", float: "number", str: "string", list: "array",
    dict: "object",
}  # fmt: skip


def is_true(value: Any) -> bool:
    """The truth of JMESPath: all but null, false and what is empty. The number 0 is true."""
    if value is None or value is False:
        return False
    return not isinstance(value, str | list | dict) or len(value) > 0


def is_number(value: Any) -> bool:
    """True for a number; Python takes a boolean for one."""
    return type(value) is int or type(value) is float


def kind_of(value: Any) -> str:
    """The type of a value, by its name in JMESPath."""
    return _KINDS[type(value)]


def is_equal(left: Any, right: Any, work: Work, depth: int = EXPRESSION_LEVELS_MAX) -> bool:
    """True for equal JSON. Each pair of elements takes steps, and so does a long text. Raises TooCostly."""
    if left is right and not isinstance(left, float):
        return True
    kind = _KINDS[type(left)]
    if kind != _KINDS[type(right)]:
        return False
    if kind not in ("array", "object"):
        if kind == "string":
            work.spend(len(left) // CHARACTERS_A_STEP)
        return bool(left == right)
    if len(left) != len(right):
        return False
    if depth == 0:
        raise TooCostly(f"values nested deeper than {EXPRESSION_LEVELS_MAX} are compared")
    work.spend((1 + len(left)) * STEPS_A_PAIR + STEPS_A_CALL)
    if kind == "array":
        return all(is_equal(one, other, work, depth - 1) for one, other in zip(left, right, strict=True))
    return all(name in right and is_equal(one, right[name], work, depth - 1) for name, one in left.items())


def is_below(left: Any, right: Any, work: Work) -> bool | None:
    """True if `left` is less than `right`; None unless both are numbers, or both are texts."""
    if is_number(left) and is_number(right):
        return bool(left < right)
    if isinstance(left, str) and isinstance(right, str):
        work.spend(min(len(left), len(right)) // CHARACTERS_A_STEP)
        return left < right
    return None
