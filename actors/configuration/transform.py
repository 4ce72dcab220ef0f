"""The transform of a receiver: which parts of a JSON body it gets, and which only as pseudonyms. Pure.

A place is named by a JSON pointer (RFC 6901) in which `*` as a whole token stands for every member or
element; a member that is really named `*` is written `~2`.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from actors.configuration.encoded_keys import decoded_key, length_problem
from actors.ids import stable_hash

POINTERS_MAX = 64
"""Number of pointers of one receiver, in all three lists together."""
POINTER_BYTES_MAX = 256
TRANSFORM_BYTES_MAX = 4096
"""Bytes of a transform in JSON: the journal and the snapshots hold it so."""
POINTER_TOKENS_MAX = 32
KEY_PREFIX = "psk_"
"""The beginning of a key of pseudonyms; its base64 follows."""
ANY = None
"""The token `*` of a parsed pointer."""

Token = str | None
_TOKEN = re.compile(r"(?:[^~]|~[012])*\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Transform(
    Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, forbid_unknown_fields=True
):  # fmt: skip
    """The lists that shape a body; each has pointers to places of the body as published.

    - `keep`: only these places stay, with all that is in them; None: everything stays.
    - `drop`: these places go.
    - `pseudonymize`: the values there are replaced by pseudonyms.

    Nodes refuse unknown members, too: to ignore what a newer version asks for would send too much.
    """

    keep: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    drop: tuple[str, ...] = ()
    pseudonymize: tuple[str, ...] = ()

    @property
    def pointers(self) -> Iterator[tuple[str, int, str]]:
        """All pointers, each with its list and its place in that."""
        for name, pointers in (("keep", self.keep or ()), ("drop", self.drop),
                               ("pseudonymize", self.pseudonymize)):  # fmt: skip
            for index, pointer in enumerate(pointers):
                yield name, index, pointer


class Shaping(Struct, frozen=True, gc=False):
    """A transform and the key of its pseudonyms. Its repr shows nothing: it holds a secret."""

    transform: Transform
    key: bytes

    def __repr__(self) -> str:
        return "Shaping(…)"


class Unshapeable(Struct, frozen=True, gc=False):
    """A body that cannot be shaped, so it must not be sent, and why."""

    why: str


def parsed_pointer(pointer: str) -> tuple[Token, ...]:
    """The tokens of a valid pointer."""
    return tuple(
        ANY if token == "*" else token.replace("~2", "*").replace("~1", "/").replace("~0", "~")
        for token in pointer[1:].split("/")
    )


def transform_problems(transform: Transform, key: str | None) -> Iterator[str]:
    """Yield what is wrong with it, each problem with its member."""
    pointers = list(transform.pointers)
    if not pointers:
        yield "transform: names no place; write null for none"
    if len(pointers) > POINTERS_MAX:
        remedy = "* stands for every member or element"
        yield f"transform: {len(pointers)} pointers, at most {POINTERS_MAX}; {remedy}"
        return
    if (size := transform_bytes(transform)) > TRANSFORM_BYTES_MAX:
        yield f"transform: {size} bytes as JSON, at most {TRANSFORM_BYTES_MAX}; name places further up"
    for name, index, pointer in pointers:
        if (why := _pointer_problem(pointer)) is not None:
            yield f"transform.{name}[{index}]: {why}"
    if transform.pseudonymize and key is None:
        yield "pseudonym_key: missing; receiver put and the HTTP API make one"


def transform_bytes(transform: Transform) -> int:
    """The bytes that a transform has as JSON: an escaped character counts as it is stored."""
    return len(msgspec.json.encode(transform))


def _pointer_problem(pointer: str) -> str | None:
    if not pointer.startswith("/"):
        return "not a JSON pointer; it begins with /, such as /order/id or /items/*/email"
    if len(pointer.encode()) > POINTER_BYTES_MAX:
        return f"{len(pointer.encode())} bytes, at most {POINTER_BYTES_MAX}"
    if (count := pointer.count("/")) > POINTER_TOKENS_MAX:
        return f"{count} tokens, at most {POINTER_TOKENS_MAX}"
    if _CONTROL.search(pointer):
        return "has a control character; name a place further up, or use *"
    if not _TOKEN.match(pointer):
        return "a ~ must be written ~0, a / in a name ~1, and a name that is * as ~2"
    return None


def pseudonym_key(text: str) -> bytes | str:
    """The key, or why it cannot be used, in words that do not repeat it."""
    key = decoded_key(text, KEY_PREFIX)
    return key if isinstance(key, str) else length_problem(key, "leave it out to get one") or key


@lru_cache(maxsize=1024)
def shaping_of(transform: Transform, key: str | None) -> Shaping:
    """The transform with the bytes of a valid key, made once: actors ask for it at each attempt."""
    found = b"" if key is None else pseudonym_key(key)
    return Shaping(transform, found if isinstance(found, bytes) else b"")


def key_hash(key: str | None) -> str:
    """The hash by which facts name a key; empty for none. Keys are random: none is found by its hash."""
    return "" if key is None else stable_hash(key)


def transform_hash(transform: Transform, hash_of_key: str) -> str:
    """The hash of a transform and its key, by which two configurations can be compared."""
    named = hash_of_key if transform.pseudonymize else ""
    return stable_hash(f"{msgspec.json.encode(transform).decode()} {named}")
