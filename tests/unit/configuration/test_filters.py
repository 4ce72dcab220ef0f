"""Filters: what JMESPath says of a body, what no filter may be, and what is no error but a failure."""

import json
from typing import Any

import jmespath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.configuration.filters.compiling import NotAFilter, compile_expression
from actors.configuration.filters.evaluating import FilterResult, decode_body, filter_of
from actors.configuration.filters.work import STEPS_MAX, Work
from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.errors import InvalidPolicy

ORDER = {
    "total": 250, "zero": 0, "region": "eu", "paid": True, "note": None, "name": "Ada", "tags": ["new",
    "vip"],
    "lines": [{"sku": "a", "price": 10, "more": [1, 2]}, {"sku": "b", "price": 240.5, "more": [[3], 4]}],
    "address": {"city": "Bonn", "zip": "53111"}, "empty": [], "nothing": {}, "text": "",
    "matrix": [[1], [2, 3]],
}  # fmt: skip
BODY = json.dumps(ORDER).encode()
EXPRESSIONS = (
    "total", "zero", "missing", "note", "text", "empty", "nothing", "paid", "!paid", "!zero", "!empty",
    "total > `100`", "total >= `250`", "total < `250`", "total <= `249`", "total == `250`", "total != `250`",
    "total == `250.0`", "paid == `true`", "paid == `1`", "`1` == `true`", "`[1]` == `[1]`", "name == 'Ada'",
    "region == 'eu' && total > `100`", "region == 'us' || total > `100`", "region == 'us' && total",
    "name > 'A'", "address.city", 'address."city"', "address.zip == '53111'", "tags[0]", "tags[-1]",
    "tags[7]",
    "tags[-7]", "tags[99999999999999999999]", "name[0]", "lines[0].sku", "lines[*].price", "lines[].sku",
    "lines[?price > `100`]", "lines[?price > `100`].sku | [0]", "lines[?price > `1000`]", "lines[:1].price",
    "lines[::-1].price", "lines[5:]", "lines[].more[]", "lines[*].more[*]", "matrix[][]", "address.*",
    "*.city",
    "*", "@", "@.total", "[total, zero]", "{a: total, b: region}", "[]", "missing.[a, b]", "missing.{a: b}",
    "contains(tags, 'vip')", "contains(tags, `1`)", "contains(name, 'd')",
    "contains(lines[*].sku, 'b')", "contains(['eu', 'us'], region)", "length(tags)", "length(name)",
    "length(address)", "starts_with(name, 'A')", "ends_with(name, 'A')", "keys(address)", "values(address)",
    "sum(lines[*].price)", "avg(lines[*].price)", "avg(empty)", "max(lines[*].price)", "min(tags)",
    "max(empty)",
    "not_null(missing, note, name)", "not_null(missing)", "to_number(address.zip)", "to_number('1.5e3')",
    "to_number('x')", "to_number('-7')", "to_number(tags)", "to_number(total)", "type(tags)", "type(paid)",
    "type(note)", "type(`1.5`)", "type(@)", "abs(`-3`)", "ceil(`1.2`)", "floor(`-1.2`)",
    "lines[?contains(more, `2`)].sku", "(total || missing) && region", "a || b || c || name", "tags == tags",
    "lines == lines", "address == `{\"city\": \"Bonn\", \"zip\": \"53111\"}`", "tags == `[\"new\", \"old\"]`",
    "address != `{\"city\": \"Bonn\"}`", "total.x", "paid[*]", "name.*", "tags | [1] | @",
)  # fmt: skip


def result_of(text: str, body: bytes = BODY) -> FilterResult:
    return filter_of(text).evaluate(decode_body(body)).result


def evaluated(text: str, value: Any) -> Any:
    return compile_expression(text).evaluate(value, Work())


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_means_what_it_means_in_jmespath(text: str) -> None:
    expected = jmespath.search(text, ORDER)
    found = evaluated(text, ORDER)
    assert (json.dumps(found), type(found)) == (json.dumps(expected), type(expected))


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        ),
        max_leaves=12,
    )


LEAVES = st.none() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["", "a", "b", "1"])
VALUES, VALUES_WITHOUT_BOOLEANS = nested(LEAVES | st.booleans()), nested(LEAVES)
SHAPES = (
    "a", "a.b", "*", "*.a", "[*]", "[*].a", "[]", "[][]", "[?a]",
    "a && b", "a || b", "!a", "[a, b]", "{x: a, y: b}", "[0]", "[-1]", "[1:]", "[::-1]", "a | b", "[*] | [0]",
    "not_null(a, b, c)", "type(a)", "a[*].b[]",
)  # fmt: skip
COMPARISONS = (
    "[?a == b]", "[?@ == `1`]", "a == b", "a != b", "[?type(@) == 'string']", "[?!(a == b)].c",
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SHAPES), VALUES)
def test_every_shape_means_the_same_on_every_value(text: str, value: Any) -> None:
    assert json.dumps(evaluated(text, value)) == json.dumps(jmespath.search(text, value))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(COMPARISONS), VALUES_WITHOUT_BOOLEANS)
def test_every_comparison_means_the_same_on_every_value(text: str, value: Any) -> None:
    """Booleans aside: Python takes 1 for true, and so does `jmespath` inside of arrays: we do not."""
    assert json.dumps(evaluated(text, value)) == json.dumps(jmespath.search(text, value))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("total", "passed"), ("zero", "passed"), ("missing", "stopped"), ("text", "stopped"),
        ("empty", "stopped"), ("nothing", "stopped"), ("note", "stopped"), ("!paid", "stopped"),
        ("lines", "passed"), ("lines[?price > `1000`]", "stopped"),
    ],
)  # fmt: skip
def test_the_truth_of_a_filter_is_that_of_jmespath(text: str, result: str) -> None:
    assert result_of(text).value == result


@pytest.mark.parametrize(
    "text",
    [
        'region == "eu"', '"eu" != region', 'total && (region == ("eu"))', 'lines[?sku < "eu"]',
        '!(a == "eu")', 'contains(tags, "eu")', 'starts_with(name, "eu")', 'ends_with(name, "eu")',
    ],
)  # fmt: skip
def test_a_text_in_double_quotes_is_refused(text: str) -> None:
    """In JMESPath it is a member, which most bodies do not have: the comparison would never be true."""
    with pytest.raises(NotAFilter) as refused:
        compile_expression(text)
    assert str(refused.value) == (
        '"eu" is the member eu of the body; write the text as \'eu\', or the member as @."eu"'
    )


@pytest.mark.parametrize(
    "text",
    [
        '@."e-u" == `[1]`', '"e-u"', '!"e-u"', '"e-u".a == `1`', 'contains("e-u", `1`)', 'not_null("e-u", b)',
        '{"e-u": a}', 'a."e-u" != b', '"e-u" && b', 'contains(b, @."e-u")',
    ],
)  # fmt: skip
def test_a_member_in_double_quotes_is_allowed_where_no_text_is_meant(text: str) -> None:
    value = {"e-u": [1], "b": [2]}
    assert evaluated(text, value) == jmespath.search(text, value)


def test_a_boolean_is_not_a_number_at_any_depth() -> None:
    for text in (
        "`[true]` == `[1]`",
        '`{"a": false}` == `{"a": 0}`',
        "`true` > `0`",
        "contains(`[1]`, `true`)",
    ):
        assert not evaluated(text, None)


def test_values_of_two_kinds_are_not_ordered() -> None:
    for text in ("total > 'a'", "name > `1`", "tags > tags", "note < `1`"):
        assert evaluated(text, ORDER) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("length(total)", "length() takes a string, an array or an object, not number"),
        ("contains(missing, 'a')", "contains() takes a string or an array, not null"),
        ("abs(name)", "abs() takes a number, not string"),
        ("sum(tags)", "sum() takes an array of numbers, not string"),
        ("starts_with(name, `1`)", "starts_with() takes a string, not number"),
        ("keys(tags)", "keys() takes an object, not array"),
        ("max(total)", "max() takes an array, not number"),
        ("max([name, total])", "max() takes a string, not number"),
    ],
)  # fmt: skip
def test_a_function_fails_on_a_value_that_it_does_not_take(text: str, why: str) -> None:
    evaluation = filter_of(text).evaluate(decode_body(BODY))
    assert (evaluation.result, evaluation.why) == (FilterResult.FAILED, why)


def test_numbers_that_are_too_large_are_a_failure() -> None:
    huge = b'{"big": 1%s, "half": 0.5}' % (b"0" * 400)
    for text in ("sum([big, half])", "avg([big, big, half])"):
        assert result_of(text, huge) is FilterResult.FAILED, text
    assert result_of("big > half", huge) is FilterResult.PASSED


@pytest.mark.parametrize("body", [b"", b"{", b"hello", b"\xff", b'{"a": "\xff"}', b"NaN", b"{} {}"])
def test_a_body_that_is_not_json_does_not_match(body: bytes) -> None:
    evaluation = filter_of("@").evaluate(decode_body(body))
    assert evaluation.result is FilterResult.NOT_JSON
    assert evaluation.why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("total > 100", "not JMESPath at '100'; write texts in single quotes, numbers in backticks"),
        ("a ==", "not JMESPath at its end"), ("", "not JMESPath; write"), ("a b", "not JMESPath at 'b'"),
        ("'open", "not JMESPath at"), ("a[?b", "not JMESPath at its end"), ("#", "not JMESPath at '#'"),
        ("`{`", "what is in backticks must be JSON"),
        ("a == `b`", "must be JSON; write texts in single quotes"),
        ("sort(a)", "a filter needs no sort(); the functions are abs, avg,"),
        ("map(&a, b)", "a filter needs no map()"), ("lenght(a)", "there is no lenght(); the functions are"),
        ("length(a, b)", "length() takes 1 argument, not 2"),
        ("contains(a)", "contains() takes 2 arguments, not 1"),
        ("not_null()", "not_null() takes 1 argument, not 0"), ("&a", "an expression with & needs a function"),
        ("a[::0]", "the step of a slice must not be 0"), ("a" * 1025, "at most 1024 bytes"),
        ("ü" * 513, "at most 1024 bytes"), ("!" * 1000 + "a", "nested deeper than 32"),
        ("(" * 500 + "a" + ")" * 500, "nested deeper than 32"),
        ("[" * 400 + "a" + "]" * 400, "nested deeper than 32"),
        ("a[*]" + "[*]" * 40, "nested deeper than 32"),
    ],
)  # fmt: skip
def test_an_expression_that_is_not_a_filter_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(NotAFilter) as refused:
        compile_expression(text)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_many_alternatives_are_not_nested() -> None:
    text = " || ".join(f"a == '{number}'" for number in range(70))
    assert result_of(text, b'{"a": "69"}') is FilterResult.PASSED
    assert result_of(text, b'{"a": "70"}') is FilterResult.STOPPED
    assert result_of(" | ".join(["@"] * 200), b"1") is FilterResult.PASSED


def test_equal_filters_are_compiled_once() -> None:
    assert filter_of("a == 'b'") is filter_of("a == 'b'")


def test_an_evaluation_says_how_many_steps_it_took() -> None:
    few = filter_of("a").evaluate(decode_body(b'{"a": 1}')).steps
    many = filter_of("a[?@ > `1`]").evaluate(decode_body(b'{"a": [%s]}' % b",".join([b"1"] * 500))).steps
    assert few < 5 < 1500 <= many < STEPS_MAX


def parsed(**members: Any) -> Policy:
    return parse(json.dumps({"url": "https://example.com/"} | members).encode(), strict=True)[0]


def problems(**members: Any) -> list[str]:
    with pytest.raises(InvalidPolicy) as refused:
        parsed(**members)
    return refused.value.problems


def test_a_configuration_has_a_filter_and_regions() -> None:
    assert (parsed().filter, parsed().region) == (None, ())
    policy = parsed(filter="total > `100`", region=["eu", "us-1"])
    assert (policy.filter, policy.region) == ("total > `100`", ("eu", "us-1"))
    assert parsed(region="eu").region == ("eu",)
    assert parsed(region=None, filter=None) == parsed()


def test_a_filter_and_regions_are_checked_when_they_are_put() -> None:
    assert problems(filter="a >") == [
        "filter: not JMESPath at its end; write texts in single quotes, numbers in backticks: "
        "region == 'eu' && amount > `100`"
    ]
    assert problems(filter="") == ["filter: must be a string that is not empty"]
    assert problems(region=["EU"]) == ["region: 'EU' is no label; use 1 to 32 of a-z 0-9 -"]
    assert problems(region="") == ["region: '' is no label; use 1 to 32 of a-z 0-9 -"]
    (problem,) = problems(region=[f"r{number}" for number in range(17)])
    assert problem == "region: 17 labels, at most 16; leave it out for events of all regions"
    assert problems(region=[]) == ["region: has no label; write null for events of all regions"]
    assert problems(region=7) == ["region[0]: must be a string"]


def test_an_event_goes_to_regions_that_name_it_or_none() -> None:
    policy = parsed(region=["eu", "us"])
    assert [policy.admits(each) for each in ("eu", "us", "asia", "")] == [True, True, False, True]
    assert parsed().admits("asia")
