"""Compiles an expression in JMESPath into functions that count their steps.

The grammar is that of the package `jmespath`; the evaluation is ours, since its own has no bounds. Before a
part is applied to each element of an array, `elements × size of the part` steps are spent. Everything else
is evaluated once for each time that its surroundings are, so its nodes are in that size already.
"""

import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

from jmespath.exceptions import JMESPathError, LexerError, ParseError
from jmespath.parser import Parser
from msgspec import Struct

from actors.configuration.filters.functions import FUNCTIONS, REFUSED
from actors.configuration.filters.values import is_below, is_equal, is_true
from actors.configuration.filters.work import EXPRESSION_LEVELS_MAX, STEPS_A_CALL, STEPS_AN_OBJECT, Work
from actors.errors import AngariumError

EXPRESSION_BYTES_MAX = 1024
HINT = "texts in single quotes, numbers in backticks: region == 'eu' && amount > `100`"
TEXT_SHOWN_MAX = 40
"""Characters of an expression that a problem repeats."""
Evaluate = Callable[[Any, Work], Any]
_Node = dict[str, Any]
_SEARCHING = ("contains", "starts_with", "ends_with")
"""Functions whose last argument is what they look for."""


class _Parser(Parser):
    """The parser of the package, which also notes which members stand in double quotes."""

    _CACHE: ClassVar[dict[str, Any]] = {}

    def _token_nud_quoted_identifier(self, token: dict[str, Any]) -> _Node:
        found: _Node = super()._token_nud_quoted_identifier(token)  # type: ignore[misc]
        return found | {"quoted": True}


class Compiled(Struct, frozen=True, gc=False):
    """A compiled part of an expression. `size`: the steps of its nodes, for one value."""

    evaluate: Evaluate
    size: int


class NotAFilter(AngariumError):
    """An expression that cannot be a filter; the text says why."""


def compile_expression(text: str) -> Compiled:
    """Compile an expression. Raises NotAFilter."""
    if len(text.encode(errors="replace")) > EXPRESSION_BYTES_MAX:
        raise NotAFilter(f"at most {EXPRESSION_BYTES_MAX} bytes; shorten it")
    try:
        with warnings.catch_warnings():
            # Of a literal that is not JSON the package makes a text, and warns; it may be JSON with an error.
            warnings.simplefilter("error", PendingDeprecationWarning)
            parsed: Any = _Parser().parse(text).parsed
        return _compiled(parsed, EXPRESSION_LEVELS_MAX)
    except RecursionError:
        raise NotAFilter(f"nested deeper than {EXPRESSION_LEVELS_MAX}; simplify it") from None
    except PendingDeprecationWarning:
        raise NotAFilter(f"what is in backticks must be JSON; write {HINT}") from None
    except JMESPathError as error:
        raise NotAFilter(_problem(text, error)) from None


def _problem(text: str, error: JMESPathError) -> str:
    """The reason why a text is no expression, in one line."""
    if not isinstance(error, ParseError):
        return f"not JMESPath; write {HINT}"
    place = error.lexer_position if isinstance(error, LexerError) else error.lex_position
    rest = text[place : place + TEXT_SHOWN_MAX]
    where = f"at {rest!r}" if rest else "at its end"
    return f"not JMESPath {where}; write {HINT}"


def _compiled(node: _Node, depth: int) -> Compiled:
    if depth == 0:
        raise NotAFilter(f"nested deeper than {EXPRESSION_LEVELS_MAX}; simplify it")
    kind: str = node["type"]
    children: list[Any] = node["children"]
    match kind:
        case "identity" | "current":
            return Compiled(lambda value, _: value, 1)
        case "literal":
            return _literal(node["value"])
        case "field":
            return _field(node["value"])
        case "index":
            return _index(node["value"])
        case "slice":
            return _slice(children)
        case "subexpression" | "index_expression" | "pipe":
            return _chain(_parts(_flat(node, "pipe"), depth))
        case "or_expression":
            return _alternatives(_parts(_flat(node, kind), depth), stops_at=True)
        case "and_expression":
            return _alternatives(_parts(_flat(node, kind), depth), stops_at=False)
        case "key_val_pair":
            return _compiled(children[0], depth)
        case "comparator":
            _check_quotes(children)
            return _compare(node, *_parts(children, depth))
        case "function_expression":
            if node["value"] in _SEARCHING:
                _check_quotes(children[-1:])
            return _call(node["value"], children, depth)
        case "multi_select_dict":
            return _object([each["value"] for each in children], _parts(children, depth))
        case _:
            build = _BUILDERS.get(kind)
            if build is None:
                raise NotAFilter(
                    "an expression with & needs a function that filters do not have; leave it out"
                )
            return build(node, *_parts(children, depth))


def _check_quotes(operands: Sequence[_Node]) -> None:
    """Refuse members in double quotes where a text is meant: `region == "eu"` would never be true."""
    for each in operands:
        if each.get("quoted"):
            name: str = each["value"][:TEXT_SHOWN_MAX]
            raise NotAFilter(
                f"\"{name}\" is the member {name} of the body; write the text as '{name}', or the member as "
                f'@."{name}"'
            )


def _flat(node: _Node, kind: str) -> list[_Node]:
    """The parts of a chain of one operator, which is parsed as a tree that leans to the left."""
    if node["type"] != kind:
        return list(node["children"])
    parts = list[_Node]()
    while node["type"] == kind:
        node, right = node["children"]
        parts.append(right)
    return [node, *reversed(parts)]


def _parts(children: Sequence[_Node], depth: int) -> list[Compiled]:
    return [_compiled(each, depth - 1) for each in children]


def _total(parts: Sequence[Compiled], own: int = 1) -> int:
    return own + sum(each.size for each in parts)


def _literal(constant: Any) -> Compiled:
    return Compiled(lambda value, work: constant, 1)


def _field(name: str) -> Compiled:
    return Compiled(lambda value, work: value.get(name) if type(value) is dict else None, 1)


def _index(place: int) -> Compiled:
    def evaluate(value: Any, work: Work) -> Any:
        if type(value) is not list or not -len(value) <= place < len(value):
            return None
        return value[place]

    return Compiled(evaluate, 1)


def _slice(parts: list[int | None]) -> Compiled:
    if parts[2] == 0:
        raise NotAFilter("the step of a slice must not be 0; leave it out")
    wanted = slice(*parts)

    def evaluate(value: Any, work: Work) -> Any:
        if type(value) is not list:
            return None
        work.spend(len(range(*wanted.indices(len(value)))))
        return value[wanted]

    return Compiled(evaluate, 1)


def _chain(parts: list[Compiled]) -> Compiled:
    steps = [each.evaluate for each in parts]

    def evaluate(value: Any, work: Work) -> Any:
        for step in steps:
            value = step(value, work)
        return value

    return Compiled(evaluate, _total(parts))


def _alternatives(parts: list[Compiled], *, stops_at: bool) -> Compiled:
    """The first part whose truth is `stops_at`, else the last."""
    *first, last = (each.evaluate for each in parts)

    def evaluate(value: Any, work: Work) -> Any:
        for each in first:
            if is_true(found := each(value, work)) is stops_at:
                return found
        return last(value, work)

    return Compiled(evaluate, _total(parts))


def _not(node: _Node, part: Compiled) -> Compiled:
    return Compiled(lambda value, work: not is_true(part.evaluate(value, work)), part.size + 1)


def _list(node: _Node, *parts: Compiled) -> Compiled:
    def evaluate(value: Any, work: Work) -> Any:
        return None if value is None else [each.evaluate(value, work) for each in parts]

    return Compiled(evaluate, _total(parts, STEPS_A_CALL))


def _object(names: list[str], parts: list[Compiled]) -> Compiled:
    def evaluate(value: Any, work: Work) -> Any:
        if value is None:
            return None
        return {name: each.evaluate(value, work) for name, each in zip(names, parts, strict=True)}

    return Compiled(evaluate, _total(parts, STEPS_AN_OBJECT))


def _compare(node: _Node, left: Compiled, right: Compiled) -> Compiled:
    operator: str = node["value"]
    one, other = left.evaluate, right.evaluate

    def evaluate(value: Any, work: Work) -> bool | None:
        first, second = one(value, work), other(value, work)
        match operator:
            case "eq":
                return is_equal(first, second, work)
            case "ne":
                return not is_equal(first, second, work)
            case "lt":
                return is_below(first, second, work)
            case "gt":
                return is_below(second, first, work)
            case "lte":
                above = is_below(second, first, work)
            case _:
                above = is_below(first, second, work)
        return None if above is None else not above

    return Compiled(evaluate, _total((left, right)))


def _projection(node: _Node, base: Compiled, part: Compiled) -> Compiled:
    kind = dict if node["type"] == "value_projection" else list

    def evaluate(value: Any, work: Work) -> Any:
        found = base.evaluate(value, work)
        if type(found) is not kind:
            return None
        elements: Collection[Any] = found.values() if isinstance(found, dict) else found
        work.spend(len(elements) * part.size)
        return [each for each in (part.evaluate(each, work) for each in elements) if each is not None]

    return Compiled(evaluate, _total((base, part)))


def _filter_projection(node: _Node, base: Compiled, part: Compiled, condition: Compiled) -> Compiled:
    size = part.size + condition.size

    def evaluate(value: Any, work: Work) -> Any:
        found = base.evaluate(value, work)
        if type(found) is not list:
            return None
        work.spend(len(found) * size)
        kept = (each for each in found if is_true(condition.evaluate(each, work)))
        return [each for each in (part.evaluate(each, work) for each in kept) if each is not None]

    return Compiled(evaluate, _total((base, part, condition)))


def _flatten(node: _Node, base: Compiled) -> Compiled:
    def evaluate(value: Any, work: Work) -> Any:
        found = base.evaluate(value, work)
        if type(found) is not list:
            return None
        work.spend(len(found))
        flat = list[Any]()
        for each in found:
            if type(each) is list:
                work.spend(len(each))
                flat += each
            else:
                flat.append(each)
        return flat

    return Compiled(evaluate, base.size + 1)


def _call(name: str, children: list[_Node], depth: int) -> Compiled:
    function = FUNCTIONS.get(name)
    if function is None:
        known = ", ".join(FUNCTIONS)
        kind = "a filter needs no" if name in REFUSED else "there is no"
        raise NotAFilter(f"{kind} {name[:TEXT_SHOWN_MAX]}(); the functions are {known}")
    count, wanted = len(children), function.arguments
    if count < wanted or (count > wanted and not function.more):
        raise NotAFilter(f"{name}() takes {wanted} {'argument' if wanted == 1 else 'arguments'}, not {count}")
    parts = _parts(children, depth)
    call = function.call

    def evaluate(value: Any, work: Work) -> Any:
        return call(work, [each.evaluate(value, work) for each in parts])

    return Compiled(evaluate, _total(parts, STEPS_A_CALL))


_BUILDERS: dict[str, Callable[..., Compiled]] = {
    "filter_projection": _filter_projection,
    "flatten": _flatten,
    "multi_select_list": _list,
    "not_expression": _not,
    "projection": _projection,
    "value_projection": _projection,
}
