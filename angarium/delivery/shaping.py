"""Shapes a JSON body as the receiver's transform says. Pure: the same input gives the same bytes.

Only the objects and arrays that a pointer leads into are decoded and written again, without spaces;
everything else keeps its bytes, so no number changes its value. Of members with the same name in such an
object the last one stays: a receiver that reads the first would else get what a pointer dropped.
"""

import base64
import hmac
import re
from functools import lru_cache

import msgspec
from msgspec import Raw, Struct

from actors.configuration.transform import Shaping, Transform
from actors.json_depth import NESTED_MAX, is_deep
from angarium.delivery.places import (
    BYTES_A_STEP,
    STEPS_MAX,
    Place,
    Places,
    PointerNode,
    Steps,
    TooManySteps,
    tree,
)

PSEUDONYM_PREFIX = "ps_"
PSEUDONYM_LENGTH = 27
"""Characters of a pseudonym after its prefix: 162 bits, so no two values share one by chance."""

STEPS_A_PSEUDONYM = 15
"""Steps of a pseudonym, besides those of its value. It may be longer than that, all in a body by 300 kB."""
STEPS_A_CANONICAL_VALUE = 12
STEPS_A_VISIT = 12
"""Steps of an object or array that a pointer leads into, besides those of its parts."""
STEPS_A_SCALAR = 3
"""Steps of another value on the way of a pointer."""

_whole = msgspec.json.Decoder(Raw)
_members = msgspec.json.Decoder(dict[str, Raw])
_elements = msgspec.json.Decoder(list[Raw])
_text = msgspec.json.Decoder(str)
_encoder = msgspec.json.Encoder()
_NUMBER = re.compile(rb"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?\Z")
_EXPONENT_DIGITS_MAX = 18
_NULL = Raw(b"null")


class Unshapeable(Struct, frozen=True):
    """A body that cannot be shaped, and why."""

    why: str


class _Trees(Struct, frozen=True):
    """The trees of the three lists of a transform."""

    keep: PointerNode | None
    drop: PointerNode | None
    pseudonymize: PointerNode | None


def shape(body: bytes, region: str, shaping: Shaping) -> bytes | Unshapeable:
    """The shaped body of an event of that region."""
    if is_deep(body):
        return Unshapeable(f"it is nested deeper than {NESTED_MAX}")
    trees, steps = _trees(shaping.transform), Steps()
    try:
        body.decode()
        value = _whole.decode(body)
        if trees.keep is not None:
            value = _Keep(steps).shaped(value, trees.keep)
        if trees.drop is not None:
            value = _Drop(steps).shaped(value, trees.drop)
        if trees.pseudonymize is not None:
            value = _Pseudonymize(steps, shaping.key, region).shaped(value, trees.pseudonymize)
        return bytes(value)
    except TooManySteps:
        return Unshapeable(f"its transform names too many places in it: more than {STEPS_MAX} steps")
    except (msgspec.DecodeError, UnicodeError):
        return Unshapeable("it is not JSON in UTF-8")


@lru_cache(maxsize=1024)
def _trees(transform: Transform) -> _Trees:
    return _Trees(tree(transform.keep or ()), tree(transform.drop), tree(transform.pseudonymize))


def _inside(value: Raw, steps: Steps) -> dict[str, Raw] | list[Raw] | None:
    """The members or elements of an object or an array; None for anything else."""
    inside: dict[str, Raw] | list[Raw]
    match memoryview(value)[0]:
        case 0x7B:  # An opening brace.
            steps.spend(STEPS_A_VISIT + len(memoryview(value)) // BYTES_A_STEP)
            inside = _members.decode(value)
        case 0x5B:  # An opening bracket.
            steps.spend(STEPS_A_VISIT + len(memoryview(value)) // BYTES_A_STEP)
            inside = _elements.decode(value)
        case _:
            steps.spend(STEPS_A_SCALAR)
            return None
    steps.spend(len(inside))
    return inside


class _Keep:
    """Leaves only what the pointers name, and the objects and arrays on the way there."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._places = Places(steps)

    def shaped(self, value: Raw, root: PointerNode) -> Raw:
        """The body with only these places; if it is neither object nor array, null."""
        found = self._kept(value, self._places.of((root,)))
        return _NULL if found is None else found

    def _kept(self, value: Raw, place: Place) -> Raw | None:
        """The value with only what the pointers name; None if they name nothing in it."""
        if place.ends:
            self._steps.spend(1)
            return value
        inside = _inside(value, self._steps)
        if inside is None:
            return None
        named = self._places.following(place)
        if isinstance(inside, dict):
            kept = {
                name: found for name, each in inside.items()
                if (following := named.get(name, place.other)) is not None
                and (found := self._kept(each, following)) is not None
            }  # fmt: skip
            return Raw(_encoder.encode(kept))
        kept_elements = [
            found for each, following in zip(inside, place.by_index(named, len(inside)), strict=True)
            if following is not None and (found := self._kept(each, following)) is not None
        ]  # fmt: skip
        return Raw(_encoder.encode(kept_elements))


class _Drop:
    """Leaves what no pointer names."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._places = Places(steps)

    def shaped(self, value: Raw, root: PointerNode) -> Raw:
        """The body without these places."""
        return self._left(value, self._places.of((root,)))

    def _left(self, value: Raw, place: Place) -> Raw:
        inside = _inside(value, self._steps)
        if inside is None:
            return value
        named = self._places.following(place)
        if isinstance(inside, dict):
            left = {
                name: each if following is None else self._left(each, following)
                for name, each in inside.items()
                if (following := named.get(name, place.other)) is None or not following.ends
            }
            return Raw(_encoder.encode(left))
        left_elements = [
            each if following is None else self._left(each, following)
            for each, following in zip(inside, place.by_index(named, len(inside)), strict=True)
            if following is None or not following.ends
        ]
        return Raw(_encoder.encode(left_elements))


class _Pseudonymize:
    """Replaces what the pointers name by the pseudonyms of one receiver and region."""

    def __init__(self, steps: Steps, key: bytes, region: str) -> None:
        self._steps = steps
        self._places = Places(steps)
        self._key = key
        self._region = region.encode() + b"\0"

    def shaped(self, value: Raw, root: PointerNode) -> Raw:
        """The body with pseudonyms at these places."""
        return self._replaced(value, self._places.of((root,)))

    def _replaced(self, value: Raw, place: Place) -> Raw:
        if place.ends:
            return self._pseudonym(value)
        inside = _inside(value, self._steps)
        if inside is None:
            return value
        named = self._places.following(place)
        written: dict[str, Raw] | list[Raw]
        if isinstance(inside, dict):
            written = {
                name: each if following is None else self._replaced(each, following)
                for name, each in inside.items()
                for following in (named.get(name, place.other),)
            }
        else:
            written = [
                each if following is None else self._replaced(each, following)
                for each, following in zip(inside, place.by_index(named, len(inside)), strict=True)
            ]
        return Raw(_encoder.encode(written))

    def _pseudonym(self, value: Raw) -> Raw:
        """The pseudonym of a value; null stays, since no person is behind it."""
        if value == _NULL:
            return value
        self._steps.spend(STEPS_A_PSEUDONYM)
        digest = hmac.digest(self._key, self._region + _canonical(value, self._steps), "sha256")
        text = base64.urlsafe_b64encode(digest)[:PSEUDONYM_LENGTH]
        return Raw(b'"%s%s"' % (PSEUDONYM_PREFIX.encode(), text))


def _canonical(value: Raw, steps: Steps) -> bytes:
    """One text for all ways to write a value: members by name, without spaces, and numbers by their value."""
    steps.spend(STEPS_A_CANONICAL_VALUE)
    match _inside(value, steps):
        case dict() as members:
            return b"{%s}" % b",".join(
                [_encoder.encode(name) + b":" + _canonical(members[name], steps) for name in sorted(members)]
            )
        case list() as elements:
            return b"[%s]" % b",".join([_canonical(each, steps) for each in elements])
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
