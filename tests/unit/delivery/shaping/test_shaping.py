"""The shape of a body: what stays, what goes, what becomes a pseudonym, and that nothing else changes."""

import base64
import hmac
import itertools
import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.configuration.transform import Shaping, Transform, Unshapeable
from actors.json_depth import BODY_LEVELS_MAX
from angarium.delivery.shaping.shape import shape

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))


def shaped(body: str, region: str = "", *, key: bytes = KEY, **lists: Any) -> str:
    found = shape(body.encode(), region, Shaping(Transform(**lists), key))
    assert isinstance(found, bytes), found
    return found.decode()


def pseudonym(canonical: str, region: str = "", key: bytes = KEY) -> str:
    """The pseudonym of a value by its canonical text, by the standard library alone."""
    digest = hmac.digest(key, region.encode() + b"\0" + canonical.encode(), "sha256")
    return "ps_" + base64.urlsafe_b64encode(digest).decode()[:27]


@pytest.mark.parametrize(("pointers", "body", "expected"), [
    (["/a"], '{"a": 1, "b": 2}', '{"b":2}'),
    (["/c"], '{"a": 1}', '{"a":1}'),
    (["/a/b"], '{"a": {"b": 1, "c": [ 1 ]}}', '{"a":{"c":[ 1 ]}}'),
    (["/a/b"], '{"a": 5}', '{"a":5}'),
    (["/*/b"], '{"x": {"b": 1}, "y": [{"b": 1}], "z": {"c": 1}}', '{"x":{},"y":[{"b": 1}],"z":{"c":1}}'),
    (["/a/*"], '{"a": [1, 2]}', '{"a":[]}'),
    (["/a/1"], '{"a": [1, 2, 3]}', '{"a":[1,3]}'),
    (["/a/01", "/a/-"], '{"a": [1, 2]}', '{"a":[1,2]}'),
    (["/1"], '{"1": 1}', "{}"),
    (["/a~1b", "/c~0d", "/~2"], '{"a/b": 1, "c~d": 2, "*": 3, "e": 4}', '{"e":4}'),
    (["/"], '{"": 1, "a": 2}', '{"a":2}'),
    (["/a", "/a/b"], '{"a": {"b": 1}}', "{}"),
    (["/caf\u00e9"], '{"caf\\u00e9": 1}', "{}"),
    (["/items/*/email"], '{"items": [{"email": 1, "id": 2}, 3, null]}', '{"items":[{"id":2},3,null]}'),
])  # fmt: skip
def test_drop(pointers: list[str], body: str, expected: str) -> None:
    assert shaped(body, drop=tuple(pointers)) == expected


@pytest.mark.parametrize(("pointers", "body", "expected"), [
    (["/a"], '{"a": {"b": 1.0}, "c": 2}', '{"a":{"b": 1.0}}'),
    (["/a/b"], '{"a": {"b": 1, "c": 2}, "d": 3}', '{"a":{"b":1}}'),
    (["/a/b"], '{"a": {"c": 2}}', '{"a":{}}'),
    (["/a/b"], '{"a": "secret"}', "{}"),
    (["/items/*/sku"], '{"items": [{"sku": 1, "x": 2}, "secret", {}]}', '{"items":[{"sku":1},{}]}'),
    (["/a/1"], '{"a": [1, 2, 3]}', '{"a":[2]}'),
    (["/x"], '"secret"', "null"),
    (["/x"], "[1]", "[]"),
    (["/a/b", "/*/c"], '{"a": {"b": 1, "c": 2, "d": 3}, "e": {"b": 1}}', '{"a":{"b":1,"c":2},"e":{}}'),
])  # fmt: skip
def test_keep(pointers: list[str], body: str, expected: str) -> None:
    assert shaped(body, keep=tuple(pointers)) == expected


@pytest.mark.parametrize(("value", "canonical"), [
    ('"ada@example.com"', '"ada@example.com"'),
    ('"\\u0061da"', '"ada"'),
    ("42", "42e0"),
    ("42.0", "42e0"),
    ("4.2e1", "42e0"),
    ("4200", "42e2"),
    ("-0.0", "0"),
    ("1E400", "1e400"),
    ("123456789012345678901234567890", "12345678901234567890123456789e1"),
    ("true", "true"),
    ('{"b": [1, 2.50], "a": null}', '{"a":null,"b":[1e0,25e-1]}'),
])  # fmt: skip
def test_all_texts_of_a_value_have_one_pseudonym(value: str, canonical: str) -> None:
    found = shaped(f'{{"a": {value}}}', pseudonymize=("/a",))
    assert found == f'{{"a":"{pseudonym(canonical)}"}}'


def test_null_has_no_pseudonym() -> None:
    assert shaped('{"a": null}', pseudonymize=("/a",)) == '{"a":null}'


def test_pseudonyms_differ_by_key_and_region() -> None:
    body, lists = '{"a": 1}', dict[str, Any](pseudonymize=("/a",))
    found = [shaped(body, **lists), shaped(body, "eu", **lists), shaped(body, key=OTHER_KEY, **lists)]
    assert found[1] == f'{{"a":"{pseudonym("1e0", "eu")}"}}'
    assert len({*found}) == 3


@pytest.mark.parametrize(("lists", "body", "expected"), [
    ({"keep": ["/items/1"], "drop": ["/items/1/s"]}, '{"items": [{"s": 1}, {"s": 2, "t": 3}]}',
     '{"items":[{"t":3}]}'),
    ({"keep": ["/1", "/2"], "drop": ["/0", "/2"]}, "[1, 2, 3]", "[2]"),
    ({"keep": ["/a"], "pseudonymize": ["/b"]}, '{"a": 1, "b": 2}', '{"a":1}'),
])  # fmt: skip
def test_an_index_means_the_element_of_the_published_body(lists: Any, body: str, expected: str) -> None:
    named: Any = {name: tuple(pointers) for name, pointers in lists.items()}
    assert shaped(body, **named) == expected


def test_an_element_becomes_a_pseudonym_although_one_before_it_is_dropped() -> None:
    body = '{"items": [{"n": "Ada"}, {"n": "Bob"}]}'
    found = shaped(body, drop=("/items/0",), pseudonymize=("/items/1/n",))
    assert found == f'{{"items":[{{"n":"{pseudonym(json.dumps("Bob"))}"}}]}}'


def test_a_pseudonym_is_that_of_what_is_left_of_its_value() -> None:
    found = shaped('{"a": {"b": 1, "c": 2}}', drop=("/a/b",), pseudonymize=("/a",))
    assert found == shaped('{"a": {"c": 2}}', pseudonymize=("/a",))


@pytest.mark.parametrize("drop", ["/card/number", "/*/number"])
def test_no_value_hides_behind_a_second_one_of_its_name(drop: str) -> None:
    """A receiver that reads the first of them would get what is dropped from the last."""
    body = '{"card": {"number": "secret"}, "card": 5, "c\\u0061rd": {"number": "secret", "number": 1}}'
    assert shaped(body, drop=(drop,)) == '{"card":{}}'


@pytest.mark.parametrize("body", [
    b"", b"not json", b'{"a": 1', b'{"a": 1} 2', b'{"a": 01}', b'{"a": NaN}', b'\xff', b'{"a": "\xff"}',
    b'\xef\xbb\xbf{"a": 1}', b'{"\\ud800": 1}', b"[" * (BODY_LEVELS_MAX + 1) + b"]" * (BODY_LEVELS_MAX + 1),
])  # fmt: skip
def test_a_body_that_is_not_json_cannot_be_shaped(body: bytes) -> None:
    assert isinstance(shape(body, "", Shaping(Transform(drop=("/b",)), KEY)), Unshapeable)


PATHS = tuple("/" + "/".join(tokens) + "/*/z" for tokens in itertools.product("*a", repeat=6))
"""All 64 pointers that lead to one place by `*` or by name."""
ONE_EACH = tuple(
    "/" + "/".join("a" if level == place % 12 else "*" for level in range(14)) + f"/{place:x}"
    for place in range(64)
)
"""Pointers of which each path in a body meets other ones."""


def array(element: bytes, count: int, depth: int = 1) -> bytes:
    return b"[" * depth + b",".join([element] * count) + b"]" * depth


def below_a(body: bytes) -> bytes:
    return b'{"a":' * 6 + body + b"}" * 6


def branches(depth: int) -> str:
    inner = branches(depth - 1) if depth else "1"
    return f'{{"a":{inner},"b":{inner}}}'


@pytest.mark.parametrize(("body", "lists"), [
    (array(b"{}", 87_000), {"drop": ("/*/z",)}),
    (array(b"1", 150_000), {"keep": ("/*",)}),
    (array(b"1", 80_000), {"drop": ("/*/z",)}),
    (array(b"[]", 87_000, 30), {"drop": ("/*" * 32,)}),
    (array(b"1", 10_000), {"pseudonymize": ("/*",)}),
    (array(array(b"1", 60_000), 1), {"pseudonymize": ("/*",)}),
    (array(array(b"0", 1000, 120), 300), {"pseudonymize": ("/*",)}),
    (array(b'"%s"' % (b"x" * 1_000_000), 1, 31), {"drop": ("/*" * 32,)}),
    (branches(12).encode(), {"drop": ONE_EACH}),
], ids=[
    "objects", "kept", "others", "deep", "pseudonyms", "parts-of-one", "depth-of-one", "bytes", "places",
])  # fmt: skip
def test_the_steps_of_a_body_are_bounded(body: bytes, lists: dict[str, Any]) -> None:
    """Nothing can stop the thread in which a body is shaped, and everybody else waits for it."""
    found = shape(body, "", Shaping(Transform(**lists), KEY))
    assert found == Unshapeable("its transform names too many places in it: more than 300000 steps")


def test_a_body_has_so_many_pseudonyms_at_most_and_grows_by_290_kb() -> None:
    """The documentation names both figures."""
    most, transform = array(b"1", 9365), Transform(pseudonymize=("/*",))
    found = shape(most, "", Shaping(transform, KEY))
    assert isinstance(found, bytes)
    assert 290_000 < len(found) - len(most) < 291_000
    assert isinstance(shape(array(b"1", 9366), "", Shaping(transform, KEY)), Unshapeable)


@pytest.mark.parametrize("lists", [
    {"drop": ("/items/*/email",)}, {"keep": ("/items/*/id",)}, {"pseudonymize": ("/items/*/email",)},
    {"keep": ("/items",), "drop": ("/items/*/n", "/items/*/x"), "pseudonymize": ("/user/id",)},
])  # fmt: skip
def test_a_body_of_256_kib_with_6000_objects_can_be_shaped(lists: dict[str, Any]) -> None:
    items = [{"id": f"A-{number}", "email": "a@b.c", "n": number} for number in range(6000)]
    body = json.dumps({"user": {"id": 1}, "items": items}).encode()
    assert len(body) > 256 << 10
    assert isinstance(shape(body, "", Shaping(Transform(**lists), KEY)), bytes)


def test_pointers_that_overlap_take_no_more_steps_than_one() -> None:
    body = below_a(array(b'{"z":1,"y":2}', 10_000)).decode()
    assert shaped(body, drop=PATHS) == shaped(body, drop=PATHS[:1]) == body.replace('"z":1,', "")


NUMBERS = st.one_of(
    st.integers().map(str), st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?", fullmatch=True),
)  # fmt: skip
NAMES = st.sampled_from(["a", "b", "c", "*", "~", "/", "1", "", "é"])
VALUES: st.SearchStrategy[str] = st.recursive(
    st.one_of(NUMBERS, st.text(max_size=5).map(json.dumps), st.sampled_from(["true", "null"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]"),
        st.dictionaries(NAMES, inner, max_size=3).map(
            lambda each: "{" + " ,".join(f"{json.dumps(name)}: {value}" for name, value in each.items()) + "}"
        ),
    ),
    max_leaves=12,
)
TOKENS = st.sampled_from(["*", "a", "b", "~2", "~0", "~1", "0", "1", "", "é"])
POINTERS = st.lists(TOKENS, min_size=1, max_size=3).map(lambda tokens: "".join(f"/{each}" for each in tokens))
LISTS = st.lists(POINTERS, min_size=1, max_size=3).map(tuple)


def plain(text: str) -> Any:
    """The value, with numbers as they are written."""
    return json.loads(text, parse_float=_digits, parse_int=_digits)


def _digits(written: str) -> tuple[str, str]:
    return "number", written


def tokens_of(pointer: str) -> list[str | None]:
    names = {"*": None, "~2": "*", "~0": "~", "~1": "/"}
    return [names.get(token, token) for token in pointer[1:].split("/")]


def leads_to(tokens: list[str | None], path: tuple[str | int, ...]) -> bool:
    return len(tokens) == len(path) and all(
        token is None or (token == place if isinstance(place, str) else token == str(place))
        for token, place in zip(tokens, path, strict=True)
    )


GONE = object()


@given(VALUES, LISTS)
def test_dropping_leaves_everything_else_as_it_was(body: str, pointers: tuple[str, ...]) -> None:
    """Compared with a plain walk, in which numbers are the digits that were published."""
    parsed = [tokens_of(each) for each in pointers]

    def goes(path: tuple[str | int, ...]) -> bool:
        return any(leads_to(tokens, path) for tokens in parsed)

    def left(value: Any, path: tuple[str | int, ...]) -> Any:
        if isinstance(value, dict):
            return {
                name: left(each, (*path, name)) for name, each in value.items() if not goes((*path, name))
            }
        if isinstance(value, list):
            return [
                left(each, (*path, index)) for index, each in enumerate(value) if not goes((*path, index))
            ]
        return value

    assert plain(shaped(body, drop=pointers)) == left(plain(body), ())


@given(VALUES, LISTS)
def test_pseudonyms_replace_what_is_named_and_nothing_else(body: str, pointers: tuple[str, ...]) -> None:
    parsed = [tokens_of(each) for each in pointers]

    def compared(before: Any, after: Any, path: tuple[str | int, ...]) -> None:
        if path and before is not None and any(leads_to(tokens, path) for tokens in parsed):
            assert isinstance(after, str)
            assert after.startswith("ps_")
            assert len(after) == 30
        elif isinstance(before, dict):
            assert before.keys() == after.keys()
            for name in before:
                compared(before[name], after[name], (*path, name))
        elif isinstance(before, list):
            assert len(before) == len(after)
            for index, each in enumerate(before):
                compared(each, after[index], (*path, index))
        else:
            assert before == after

    compared(plain(body), plain(shaped(body, pseudonymize=pointers)), ())


ROW = st.sampled_from(["1", "null", "[1,2]", '{"a":1,"b":2}', '{"a":[3,4]}'])
ROWS = st.lists(ROW, min_size=2, max_size=3).map(lambda rows: f"[{','.join(rows)}]")
ROW_POINTERS = st.lists(st.sampled_from("*01ab"), min_size=1, max_size=2).map(
    lambda each: f"/{'/'.join(each)}"
)
ROW_LISTS = st.lists(ROW_POINTERS, min_size=1, max_size=3).map(tuple)


def agree(
    body: str, keep: tuple[str, ...] | None, drop: tuple[str, ...], pseudonymize: tuple[str, ...]
) -> None:
    """Compare with a plain walk, which asks for each place whether a list names it."""
    lists = [[tokens_of(each) for each in pointers] for pointers in (keep or (), drop, pseudonymize)]

    def named(which: int, path: tuple[str | int, ...]) -> bool:
        return any(leads_to(tokens, path) for tokens in lists[which])

    def at_or_below_kept(path: tuple[str | int, ...]) -> bool:
        return keep is None or any(named(0, path[:count]) for count in range(1, len(path) + 1))

    def on_the_way(path: tuple[str | int, ...]) -> bool:
        return any(leads_to(tokens[: len(path)], path) for tokens in lists[0] if len(tokens) > len(path))

    def expected(value: Any, path: tuple[str | int, ...]) -> Any:
        if named(1, path):
            return GONE
        left: Any = value if at_or_below_kept(path) else GONE
        if isinstance(value, dict | list) and (left is value or on_the_way(path)):
            pairs: Any = value.items() if isinstance(value, dict) else enumerate(value)
            inside = [(key, found) for key, each in pairs
                      if (found := expected(each, (*path, key))) is not GONE]  # fmt: skip
            left = dict(inside) if isinstance(value, dict) else [each for _, each in inside]
        return "pseudonym" if named(2, path) and left is not GONE and left is not None else left

    def without_pseudonyms(value: Any) -> Any:
        match value:
            case dict():
                return {name: without_pseudonyms(each) for name, each in value.items()}
            case list():
                return [without_pseudonyms(each) for each in value]
            case str() if value.startswith("ps_") and len(value) == 30:
                return "pseudonym"
            case _:
                return value

    found = expected(plain(body), ())
    sent = shaped(body, keep=keep, drop=drop, pseudonymize=pseudonymize)
    assert without_pseudonyms(plain(sent)) == (None if found is GONE else found)


@given(VALUES, LISTS)
def test_keeping_leaves_the_named_places_and_the_way_to_them(body: str, pointers: tuple[str, ...]) -> None:
    agree(body, pointers, (), ())


@settings(max_examples=300)
@given(ROWS, st.none() | ROW_LISTS, st.just(()) | ROW_LISTS, st.just(()) | ROW_LISTS)
def test_all_lists_name_places_of_the_published_body(
    body: str, keep: tuple[str, ...] | None, drop: tuple[str, ...], pseudonymize: tuple[str, ...]
) -> None:
    agree(body, keep, drop, pseudonymize)


@given(NUMBERS, NUMBERS)
def test_numbers_have_one_pseudonym_only_if_they_are_equal(one: str, other: str) -> None:
    found = [shaped(f'{{"a": {each}}}', pseudonymize=("/a",)) for each in (one, other)]
    assert (found[0] == found[1]) == (Decimal(one) == Decimal(other))


def test_another_process_makes_the_same_bytes() -> None:
    body = '{"b": {"x": 1, "a": [2.0]}, "a": 1e5, "c": "d"}'
    program = (
        "from actors.configuration.transform import Shaping, Transform\n"
        "from angarium.delivery.shaping.shape import shape\n"
        f"print(shape({body.encode()!r}, 'eu', Shaping(Transform(drop=('/c',), pseudonymize=('/b', '/a')), "
        f"{KEY!r})).decode())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == shaped(body, "eu", drop=("/c",), pseudonymize=("/b", "/a"))
