"""Shapes a JSON body as the receiver's transform says. Pure: the same input gives the same bytes.

Only the objects and arrays that a pointer leads into are decoded and written again, without spaces;
everything else keeps its bytes, so no number changes its value. Of members with the same name in such an
object the last one stays: a receiver that reads the first would else get what a pointer dropped.
"""

import base64
import hmac
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

import msgspec
from msgspec import Raw, Struct

from actors.configuration.transform import ANY, Shaping, Token, Transform, parsed_pointer
from actors.json_depth import NESTED_MAX, is_deep

PSEUDONYM_PREFIX = "ps_"
PSEUDONYM_LENGTH = 27
"""Characters of a pseudonym after its prefix: 162 bits, so no two values share one by chance."""

PSEUDONYMS_MAX = 10_000
"""Pseudonyms in one body: they may be longer than what they replace, by 300 kB in all."""

_Nodes = Sequence["_Node"]
_whole = msgspec.json.Decoder(Raw)
_members = msgspec.json.Decoder(dict[str, Raw])
_elements = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)
_encoder = msgspec.json.Encoder()
_NUMBER = re.compile(rb"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?\Z")
_EXPONENT_DIGITS_MAX = 18
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")
_NULL = Raw(b"null")


class Unshapeable(Struct, frozen=True):
    """A body that cannot be shaped, and why."""

    why: str


class _Node(Struct):
    """A place in the pointers of one list: what its tokens lead to, and whether a pointer ends here."""

    following: dict[Token, "_Node"]
    ends: bool = False


class _Places(Struct, frozen=True):
    """The pointers of a transform as trees, which share their beginnings."""

    keep: _Node | None
    drop: _Node | None
    pseudonymize: _Node | None


def shape(body: bytes, region: str, shaping: Shaping) -> bytes | Unshapeable:
    """The shaped body of an event of that region."""
    if is_deep(body):
        return Unshapeable(f"it is nested deeper than {NESTED_MAX}")
    try:
        body.decode()
        value = _whole.decode(body)
        places = _places(shaping.transform)
        if places.keep is not None:
            value = _kept(value, (places.keep,))
        if places.drop is not None:
            value = _dropped(value, (places.drop,))
        if places.pseudonymize is not None:
            value = _pseudonymized(value, (places.pseudonymize,), _Pseudonyms(shaping.key, region))
        return bytes(value)
    except _TooManyPseudonyms:
        return Unshapeable(f"it has more than {PSEUDONYMS_MAX} values to pseudonymize")
    except (msgspec.DecodeError, UnicodeError):
        return Unshapeable("it is not JSON in UTF-8")


@lru_cache(maxsize=1024)
def _places(transform: Transform) -> _Places:
    return _Places(_tree(transform.keep or ()), _tree(transform.drop), _tree(transform.pseudonymize))


def _tree(pointers: Sequence[str]) -> _Node | None:
    root = _Node({})
    for pointer in pointers:
        node = root
        for token in parsed_pointer(pointer):
            node = node.following.setdefault(token, _Node({}))
        node.ends = True
    return root if pointers else None


def _following(nodes: _Nodes, token: str) -> list[_Node]:
    """The places that the token leads to from these."""
    return [each for node in nodes for key in (ANY, token) if (each := node.following.get(key)) is not None]


def _by_index(nodes: _Nodes, count: int) -> Iterator[list[_Node]]:
    """Yield the places that each index of an array leads to; a body may have 100,000 elements."""
    of_any = [each for node in nodes if (each := node.following.get(ANY)) is not None]
    named = {
        int(key): _following(nodes, key)
        for node in nodes for key in node.following if key is not ANY and _INDEX.match(key)
    }  # fmt: skip
    return map(named.get, range(count), repeat(of_any)) if named else repeat(of_any, count)


def _ends(nodes: _Nodes) -> bool:
    return any(each.ends for each in nodes)


def _inside(value: Raw) -> dict[str, Raw] | list[Raw] | None:
    """The members or elements of an object or an array; None for anything else."""
    match bytes(memoryview(value)[:1]):
        case b"{":
            return _members.decode(value)
        case b"[":
            return _elements.decode(value)
        case _:
            return None


def _kept(value: Raw, nodes: _Nodes) -> Raw:
    """The body with only what the pointers name; if that is neither object nor array, null."""
    found = _kept_inside(value, nodes)
    return _NULL if found is None else found


def _kept_inside(value: Raw, nodes: _Nodes) -> Raw | None:
    """The value with only what the pointers name; None if they name nothing in it."""
    if _ends(nodes):
        return value
    match _inside(value):
        case dict() as members:
            kept = {
                name: found for name, each in members.items()
                if (following := _following(nodes, name))
                and (found := _kept_inside(each, following)) is not None
            }  # fmt: skip
            return Raw(_encoder.encode(kept))
        case list() as elements:
            found_elements = [
                found for each, following in zip(elements, _by_index(nodes, len(elements)), strict=True)
                if following and (found := _kept_inside(each, following)) is not None
            ]  # fmt: skip
            return Raw(_encoder.encode(found_elements))
        case None:
            return None


def _dropped(value: Raw, nodes: _Nodes) -> Raw:
    """The value without what the pointers name."""
    match _inside(value):
        case dict() as members:
            left = dict[str, Raw]()
            for name, each in members.items():
                following = _following(nodes, name)
                if not _ends(following):
                    left[name] = _dropped(each, following) if following else each
            return Raw(_encoder.encode(left))
        case list() as elements:
            left_elements = list[Raw]()
            for each, following in zip(elements, _by_index(nodes, len(elements)), strict=True):
                if not _ends(following):
                    left_elements.append(_dropped(each, following) if following else each)
            return Raw(_encoder.encode(left_elements))
        case None:
            return value


class _TooManyPseudonyms(Exception):
    """The body has more values to pseudonymize than it may have."""


class _Pseudonyms(Struct):
    """Makes the pseudonyms of one receiver and region, and counts them in `made`."""

    key: bytes
    region: str
    made: int = 0

    def pseudonym(self, value: Raw) -> Raw:
        """The pseudonym of a value; null stays, since no person is behind it."""
        if value == _NULL:
            return value
        self.made += 1
        if self.made > PSEUDONYMS_MAX:
            raise _TooManyPseudonyms
        digest = hmac.digest(self.key, self.region.encode() + b"\0" + _canonical(value), "sha256")
        text = base64.urlsafe_b64encode(digest)[:PSEUDONYM_LENGTH].decode()
        return Raw(b'"%s%s"' % (PSEUDONYM_PREFIX.encode(), text.encode()))


def _pseudonymized(value: Raw, nodes: _Nodes, pseudonyms: _Pseudonyms) -> Raw:
    """The value with pseudonyms at the places that the pointers name."""
    if _ends(nodes):
        return pseudonyms.pseudonym(value)
    written: Any
    match _inside(value):
        case dict() as members:
            written = {
                name: _pseudonymized(each, following, pseudonyms)
                if (following := _following(nodes, name)) else each
                for name, each in members.items()
            }  # fmt: skip
        case list() as elements:
            written = [
                _pseudonymized(each, following, pseudonyms) if following else each
                for each, following in zip(elements, _by_index(nodes, len(elements)), strict=True)
            ]  # fmt: skip
        case None:
            return value
    return Raw(_encoder.encode(written))


def _canonical(value: Raw) -> bytes:
    """One text for all ways to write a value: members by name, without spaces, and numbers by their value."""
    match _inside(value):
        case dict() as members:
            return b"{%s}" % b",".join(
                [_encoder.encode(name) + b":" + _canonical(members[name]) for name in sorted(members)]
            )
        case list() as elements:
            return b"[%s]" % b",".join([_canonical(each) for each in elements])
        case None:
            text = bytes(value)
            if text.startswith(b'"'):
                return _encoder.encode(_text.decode(text))
            number = _NUMBER.match(text)
            return text if number is None else _canonical_number(text, *number.groups(b""))


def _canonical_number(text: bytes, sign: bytes, whole: bytes, fraction: bytes, power: bytes) -> bytes:
    """The digits of a number and its power of ten, both without needless zeros: 10, 10.0 and 1e1 are one."""
    if len(power) > _EXPONENT_DIGITS_MAX:
        return text
    digits = (whole + fraction).lstrip(b"0")
    significant = digits.rstrip(b"0")
    if not significant:
        return b"0"
    exponent = int(power or b"0") - len(fraction) + len(digits) - len(significant)
    return b"%s%se%d" % (sign, significant, exponent)
