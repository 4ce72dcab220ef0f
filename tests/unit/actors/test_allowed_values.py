"""Errors say in words where a wrong value is, and which values are allowed there."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from actors.allowed_values import conversion_problem


class Part(Struct, forbid_unknown_fields=True):
    limit: Annotated[float, Meta(ge=1e-6, le=8_640_000)]
    until: Annotated[datetime, Meta(tz=True)] | None = None


class Whole(Struct):
    order: Literal["strict", "relaxed"] = "strict"
    count: Annotated[int, Meta(ge=1, le=256)] = 1
    backlog: Annotated[int, Meta(ge=1)] | None = None
    name: Annotated[str, Meta(min_length=1, max_length=9)] = "a"
    paused: bool = False
    texts: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    some: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    headers: dict[str, str] = {}
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    either: int | str = 0


@pytest.mark.parametrize(
    ("members", "path", "sentence"),
    [
        ({"order": "any"}, ".order", "must be relaxed or strict"),
        ({"count": 300}, ".count", "must be a whole number from 1 to 256"),
        ({"backlog": "many"}, ".backlog", "must be a whole number from 1"),
        ({"name": ""}, ".name", "must be a string of 1 to 9 characters"),
        ({"paused": 1}, ".paused", "must be true or false"),
        ({"texts": "a"}, ".texts", "must be a list of strings"),
        ({"texts": [1]}, ".texts[0]", "must be a string"),
        ({"some": []}, ".some", "must be a list of strings, not empty"),
        ({"numbers": 1}, ".numbers", "must be a list of values, each a whole number"),
        ({"headers": []}, ".headers", "must be an object whose values are strings"),
        ({"headers": {"a": 1}}, ".headers[...]", "must be a string"),
        ({"part": 1}, ".part", "must be an object with limit, until"),
        ({"part": {"limit": 0}}, ".part.limit", "must be a number from 0.000001 to 8640000"),
        ({"part": {}}, ".part.limit", "required, but missing"),
        ({"part": {"limit": 1, "rest": 1}}, ".part.rest", "unknown member; only limit or until can be here"),
        ({"part": {"limit": 1, "untill": 1}}, ".part.untill", "unknown member; did you mean until?"),
        ({"parts": [{"limt": 1}]}, ".parts[0].limt", "unknown member; did you mean limit?"),
        ({"parts": {}}, ".parts", "must be a list of objects"),
        (
            {"parts": [{"limit": 1, "until": "soon"}]},
            ".parts[0].until",
            "must be a time with its zone, such as 2026-01-31T12:00:00Z",
        ),
        ({"either": []}, ".either", "must be a whole number or a string"),
    ],
)
def test_a_problem_says_where_and_what_is_allowed(members: dict[str, Any], path: str, sentence: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(members, Whole)
    assert conversion_problem(raised.value, Whole) == (path, sentence)
