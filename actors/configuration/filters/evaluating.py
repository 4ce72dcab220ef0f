"""Evaluates whether a filter lets an event through, within bounds that hold for every expression and body.

The body is decoded once, for all filters that wait for it. Decoding cannot be interrupted either, so a body
with too many arrays, objects and members is not decoded.
"""

from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from actors.configuration.filters.compiling import Evaluate, compile_expression
from actors.configuration.filters.values import is_true
from actors.configuration.filters.work import STEPS_MAX, FilterFailed, TooCostly, Work
from actors.json_depth import BODY_LEVELS_MAX, is_deep

CONTAINERS_MAX = 8_192
"""Opening brackets in a body that is decoded."""
ELEMENTS_MAX = 32_768
"""Commas in a body that is decoded."""
FLOATS_MAX = 4_096
"""Fractions in a body that is decoded; one with an exponent counts as three, and a long one as several."""
FLOAT_LENGTH = 20
"""Characters of a fraction that count as one."""
DIGITS_MAX = 1_000
"""Digits in a row in a body that is decoded: to make a number of them takes time by their square."""
COMPILED_MAX = 1024
"""Filters that are kept, since many receivers have the same."""
_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_TOO_MANY_DIGITS = b"0" * (DIGITS_MAX + 1)


class FilterResult(Enum):
    """The answer of a filter about an event. Only `PASSED` lets it through; the last three are failures."""

    PASSED = "passed"
    STOPPED = "stopped"
    NOT_JSON = "not_json"
    FAILED = "failed"
    TOO_COSTLY = "too_costly"


FAILURES = (FilterResult.NOT_JSON, FilterResult.FAILED, FilterResult.TOO_COSTLY)


class FilterAnswer(Struct, frozen=True, gc=False):
    """The result for one event; `steps`: those that it took; `why`: in words, if it is a failure."""

    result: FilterResult
    steps: int
    why: str = ""


class DecodedBody(Struct, frozen=True):
    """The value of a body; `problem`: what stands in the way of evaluating it, with the reason."""

    value: Any = None
    problem: FilterAnswer | None = None


class Filter(Struct, frozen=True, eq=False):
    """A filter that is ready to evaluate."""

    text: str
    expression: Evaluate
    size: int

    def evaluate(self, body: DecodedBody) -> FilterAnswer:
        """Evaluate an event by its decoded body."""
        if body.problem is not None:
            return body.problem
        work, why = Work(), ""
        try:
            work.spend(self.size)
            passed = is_true(self.expression(body.value, work))
            result = FilterResult.PASSED if passed else FilterResult.STOPPED
        except TooCostly as error:
            result, why = FilterResult.TOO_COSTLY, str(error)
        except (FilterFailed, ArithmeticError) as error:
            result, why = FilterResult.FAILED, str(error)
        return FilterAnswer(result, STEPS_MAX - max(0, work.left), why)


@lru_cache(maxsize=COMPILED_MAX)
def filter_of(text: str) -> Filter:
    """The filter of an expression. Raises NotAFilter."""
    compiled = compile_expression(text)
    return Filter(text, compiled.evaluate, compiled.size)


def decode_body(body: bytes) -> DecodedBody:
    """The body of an event, decoded for all its filters."""
    if why := _too_much_in(body):
        return _not_evaluated(FilterResult.TOO_COSTLY, why)
    if is_deep(body):
        return _not_evaluated(FilterResult.NOT_JSON, f"it is nested deeper than {BODY_LEVELS_MAX}")
    try:
        return DecodedBody(msgspec.json.Decoder(float_hook=_FloatCounter().read).decode(body))
    except TooCostly as error:
        return _not_evaluated(FilterResult.TOO_COSTLY, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _not_evaluated(FilterResult.NOT_JSON, str(error))


class _FloatCounter:
    """Reads fractions, up to a number of them.

    The decoder's own way takes up to 15 microseconds for one, such as 1e308, and Python's a third of one.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = FLOATS_MAX

    def read(self, text: str) -> float:
        """The number in a text. Raises TooCostly."""
        self._left -= 1 + len(text) // FLOAT_LENGTH + 2 * ("e" in text or "E" in text)
        if self._left < 0:
            raise TooCostly("the body has too many fractions")
        return float(text)


def _too_much_in(body: bytes) -> str:
    """The reason why a body takes too long to be decoded; empty if it does not."""
    containers, elements = body.count(b"[") + body.count(b"{"), body.count(b",")
    if containers > CONTAINERS_MAX or elements > ELEMENTS_MAX:
        return f"the body has {containers} opening brackets and {elements} commas"
    if len(body) > DIGITS_MAX and _TOO_MANY_DIGITS in body.translate(_DIGITS_AS_ZEROS):
        return f"the body has more than {DIGITS_MAX} digits in a row"
    return ""


def _not_evaluated(result: FilterResult, why: str) -> DecodedBody:
    return DecodedBody(problem=FilterAnswer(result, 0, why))
