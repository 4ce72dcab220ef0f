"""Parameters of queries: those that an operation does not have are refused, not ignored."""

from collections.abc import Collection
from functools import cache
from urllib.parse import parse_qsl

from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from actors.allowed_values import closest
from angarium.api.problems import Fault, invalid

SHOWN_MAX = 40
"""Characters of an unknown name that are repeated."""


def check_parameters(query: bytes, known: Collection[str] = ()) -> None:
    """Check that a query has only these parameters. Raises `ProblemRaised`."""
    if not query:
        return
    unknown = {name for name, _ in parse_qsl(query.decode("latin-1"), True, errors="replace")}.difference(
        known
    )
    if unknown:
        raise invalid(*(_unknown(name, known) for name in sorted(unknown)[:SHOWN_MAX]))


@cache
def parameters_of(handler: BaseRouteHandler) -> frozenset[str]:
    """The names of the parameters that a route takes from the query."""
    return frozenset(
        each.kwarg_definition.name or name
        for name, each in handler.parsed_fn_signature.parameters.items()
        if isinstance(each.kwarg_definition, QueryParameter)
    )


def _unknown(name: str, known: Collection[str]) -> Fault:
    if meant := closest(name, known):
        hint = f"; did you mean {meant}?"
    else:
        hint = f"; the parameters are {', '.join(sorted(known))}" if known else "; this path has none"
    shown = name if len(name) <= SHOWN_MAX else f"{name[:SHOWN_MAX]}…"
    return Fault(parameter=shown, detail=f"there is no parameter {shown}{hint}")
