"""The size of a configuration; one beyond its bounds is refused cheaply."""

import json
from typing import Any

import pytest

from actors.configuration.parsing import DOCUMENT_MAX, PROBLEMS_SHOWN_MAX, parse
from actors.errors import InvalidPolicy
from streams.buckets.without_secrets import without_secrets

URL = "https://example.com/hook"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def raw(**members: Any) -> bytes:
    return json.dumps({"url": URL} | members).encode()


def problems(document: bytes, *, strict: bool = True) -> list[str]:
    with pytest.raises(InvalidPolicy) as refused:
        parse(document, strict=strict)
    return refused.value.problems


def headers(count: int, length: int) -> dict[str, str]:
    return {f"x-{number:04}": "v" * (length - 6) for number in range(count)}


@pytest.mark.parametrize(
    "members",
    [
        {"secrets": [SECRET] * 8},
        {"headers": headers(64, 256)},
        {"events": [f"order.{number}" for number in range(256)]},
        {"events": [".".join(["*"] * 4 + ["a"] * 12), "*.*.*.*.>", ".".join(["a"] * 15) + ".>"]},
    ],
)
def test_values_just_within_the_bounds_are_accepted(members: dict[str, Any]) -> None:
    parse(raw(**members), strict=True)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"secrets": [SECRET] * 9}, "secrets: 9 of them, at most 8; leave out the oldest, which come last"),
        ({"headers": headers(65, 20)}, "headers: 65 of them, at most 64; leave some out"),
        (
            {"headers": headers(64, 257)},
            "headers: 16448 characters of names and values, at most 16384; shorten them",
        ),
        (
            {"events": ["a"] * 257},
            "events: 257 patterns, at most 256; a wildcard (order.*, order.>) stands for many",
        ),
        (
            {"events": ["a", "*.*.a.*.*.*"]},
            "events[1]: 5 tokens are *, at most 4; write out more tokens, or end it with > (order.>)",
        ),
        (
            {"adaptive": {"rate_min": 5, "rate_max": 4}},
            "adaptive.rate_max: must not be below adaptive.rate_min; raise it or lower that",
        ),
        ({"adaptive": {"rate_min": 0}}, "adaptive.rate_min: must be a number from 0.001 to 1000000"),
        ({"adaptive": {"smart": "yes"}}, "adaptive.smart: must be true or false"),
    ],
)
def test_each_bound_is_named_with_its_field_and_a_remedy(members: dict[str, Any], problem: str) -> None:
    assert problems(raw(**members)) == [problem]
    assert problems(raw(**members), strict=False) == [problem]


@pytest.mark.parametrize("pattern", [".".join(["*"] * 17), ".".join(["a"] * 16) + ".>", "a" * 201])
def test_a_pattern_is_bounded_like_the_types_that_it_matches(pattern: str) -> None:
    (problem,) = problems(raw(events=[pattern]))
    assert problem.startswith("events[0]: not a NATS wildcard")


def test_a_document_that_is_too_large_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bytes] = []
    monkeypatch.setattr("msgspec.json.decode", reads.append)
    document = raw().ljust(DOCUMENT_MAX + 1)
    (problem,) = problems(document, strict=False)
    assert problem == (
        "configuration: is 65537 bytes, at most 65536; shorten it, or make several receivers of it"
    )
    assert reads == []


def test_a_document_of_the_largest_size_is_read() -> None:
    parse(raw().ljust(DOCUMENT_MAX), strict=True)


MANY = 9_000


@pytest.mark.parametrize(
    "document",
    [
        b'{"url": "' + URL.encode() + b'", ' + b",".join(b'"%x":0' % each for each in range(7000)) + b"}",
        raw(events=["!"] * 256, headers={f" {each}": "" for each in range(64)}, secrets=["?"] * 8),
        raw(events=[f"!{each}" for each in range(6000)]),
        raw(**{"n" * 60_000: 0}),
        raw(headers={"n" * 60_000: ""}),
    ],
    ids=["unknown members", "all at once", "patterns", "long member", "long header"],
)
def test_the_problems_that_are_reported_are_bounded(document: bytes) -> None:
    """Every node logs the problems, `inspect` shows them, and commands print them."""
    assert len(document) <= DOCUMENT_MAX
    found = problems(document)
    assert len(found) <= PROBLEMS_SHOWN_MAX + 1
    assert len("; ".join(found)) < MANY
    if len(found) > PROBLEMS_SHOWN_MAX:
        assert found[-1].endswith("more of this kind")


def test_warnings_are_bounded_too() -> None:
    document = (
        b'{"url": "' + URL.encode() + b'", ' + b",".join(b'"%x":0' % each for each in range(7000)) + b"}"
    )
    _, warnings = parse(document, strict=False)
    assert len(warnings) == PROBLEMS_SHOWN_MAX + 1
    assert warnings[-1] == f"and {7000 - PROBLEMS_SHOWN_MAX} more of this kind"


@pytest.mark.parametrize(
    "document",
    [
        b"[" * 60_000,
        b'{"url": "u", "x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"url": "u", "backlog_max": ' + b"9" * 60_000 + b"}",
        b'{"url": "u", "timeout_s": 1e999}',
        b'{"url": "u", "timeout_s": 0.' + b"1" * 60_000 + b"}",
        b'{"url": "https://a.example:' + b"9" * 4_000 + b'/"}',
        b'{"url": "https://a.example/' + b"a" * 60_000 + b'"}',
    ],
    ids=["open", "deep", "integer", "exponent", "fraction", "port", "url"],
)
def test_hostile_json_is_one_problem(document: bytes) -> None:
    assert len(problems(document)) <= 2


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("name", ["url", "rate", "nobody_knows"])
def test_no_depth_can_be_decoded_and_not_written(name: str, opened: str, closed: str) -> None:
    """The interpreter goes so deep, or a little less from where more functions have been called."""
    for depth in (*range(900, 1010), 17, 5000):
        document = f'{{"{name}": {opened * depth}1{closed * depth}}}'.encode()
        assert len(problems(document)) == 1
        assert without_secrets(document) == {}


def test_the_url_of_a_proxy_in_place_of_its_name_is_not_shown() -> None:
    document = json.dumps({"proxy": "http://user:s3cret@proxy:3128", "tls": "partner"}).encode()
    shown = without_secrets(document)
    assert shown["tls"] == "partner"
    assert "s3cret" not in str(shown)
    assert without_secrets(b'{"proxy": "eu", "tls": null}') == {"proxy": "eu", "tls": None}
