"""The transform of a configuration: which pointers it accepts, and the key of its pseudonyms."""

from typing import Any

import msgspec
import pytest

from actors.configuration.parsing import parse
from actors.configuration.transform import (
    ANY,
    KEY_PREFIX,
    POINTERS_MAX,
    Transform,
    key_hash,
    parsed_pointer,
    pseudonym_key,
    transform_hash,
)
from actors.errors import InvalidPolicy

URL = "https://example.com/hook"
KEY = KEY_PREFIX + "b2xk" * 8


def problems(**members: Any) -> list[str]:
    with pytest.raises(InvalidPolicy) as raised:
        parse(msgspec.json.encode({"url": URL} | members), strict=True)
    return raised.value.problems


def problem(**members: Any) -> str:
    (found,) = problems(**members)
    return found


def test_a_transform_is_read() -> None:
    given = {"keep": ["/order/id", "/items/*/sku"], "drop": ["/card"], "pseudonymize": ["/user/id"]}
    policy, warnings = parse(
        msgspec.json.encode({"url": URL, "transform": given, "pseudonym_key": KEY}), strict=True
    )
    assert policy.transform == Transform(
        keep=("/order/id", "/items/*/sku"), drop=("/card",), pseudonymize=("/user/id",)
    )
    assert not warnings
    assert KEY not in repr(policy)


@pytest.mark.parametrize("absent", [{}, {"transform": None}])
def test_no_transform_is_the_default(absent: dict[str, Any]) -> None:
    assert parse(msgspec.json.encode({"url": URL} | absent), strict=True)[0].transform is None


@pytest.mark.parametrize(("pointer", "tokens"), [
    ("/a/*/b", ("a", ANY, "b")), ("/", ("",)), ("/a~1b/~0/~2", ("a/b", "~", "*")), ("/~01", ("~1",)),
    ("/a*", ("a*",)),
])  # fmt: skip
def test_a_pointer_is_read_as_rfc_6901_has_it(pointer: str, tokens: tuple[str | None, ...]) -> None:
    assert parsed_pointer(pointer) == tokens


@pytest.mark.parametrize(("pointer", "why"), [
    ("", "not a JSON pointer"), ("a/b", "not a JSON pointer"), ("$.a", "not a JSON pointer"),
    ("/a~", "a ~ must be written"), ("/a~3", "a ~ must be written"),
    ("/" + "é" * 128, "257 bytes, at most 256"), ("/a" * 33, "33 tokens, at most 32"),
    ("/a\x01", "has a control character"), ("/\x7f", "has a control character"),
])  # fmt: skip
def test_an_invalid_pointer_is_named_with_its_place(pointer: str, why: str) -> None:
    assert problem(transform={"drop": ["/a", pointer]}).startswith(f"transform.drop[1]: {why}")


@pytest.mark.parametrize(("members", "expected"), [
    ({"transform": {}}, "transform: names no place"),
    ({"transform": {"drop": ["/a"] * (POINTERS_MAX + 1)}}, "transform: 65 pointers, at most 64"),
    ({"transform": {"drop": ["/" + "a" * 250] * 17}}, "transform: 4328 bytes as JSON, at most 4096"),
    ({"transform": {"drop": ["/" + '"' * 250] * 9}}, "transform: 4546 bytes as JSON, at most 4096"),
    ({"transform": {"keep": []}}, "transform.keep: "),
    ({"transform": ["/a"]}, "transform: "),
    ({"transform": {"drop": ["/a"], "mask": ["/b"]}}, "transform.mask: unknown member"),
    ({"transform": {"pseudonymize": ["/a"]}}, "pseudonym_key: missing"),
    ({"pseudonym_key": "whsec_" + "b2xk" * 8}, "pseudonym_key: must begin with psk_"),
    ({"pseudonym_key": "psk_" + "b2xk" * 4}, "pseudonym_key: must hold 24 to 64 bytes, has 12"),
    ({"pseudonym_key": "psk_!"}, "pseudonym_key: not base64"),
])  # fmt: skip
def test_a_member_that_cannot_be_used_is_refused_by_its_name(members: dict[str, Any], expected: str) -> None:
    assert problem(**members).startswith(expected)


def test_a_node_refuses_a_transform_that_it_does_not_fully_know() -> None:
    """A node that ignored it would send what a newer one leaves out."""
    members = {"url": URL, "transform": {"drop": ["/a"], "mask": ["/b"]}}
    with pytest.raises(InvalidPolicy):
        parse(msgspec.json.encode(members), strict=False)


def test_a_key_is_read_and_its_problems_do_not_repeat_it() -> None:
    assert pseudonym_key(KEY) == b"old" * 8
    assert "b2xk" not in str(pseudonym_key("psk_" + "b2xk" * 2))


def test_the_hash_of_a_transform_names_its_key_only_if_there_are_pseudonyms() -> None:
    drop, pseudonymize = Transform(drop=("/a",)), Transform(pseudonymize=("/a",))
    one, other = key_hash(KEY), key_hash(KEY_PREFIX + "bmV3" * 8)
    assert transform_hash(drop, one) == transform_hash(drop, other)
    assert (
        len({transform_hash(pseudonymize, each) for each in (one, other)} | {transform_hash(drop, one)}) == 3
    )
