"""Shapes a JSON body as the receiver's transform says. Pure: the same input gives the same bytes.

Only the objects and arrays that a pointer leads into are decoded and written again, without spaces;
everything else keeps its bytes, so no number changes its value. Of members with the same name in such an
object the last one stays: a receiver that reads the first would else get what a pointer dropped.
"""

import base64
import hmac
import re
from itertools import repeat

import msgspec
from msgspec import Raw

from actors.configuration.transform import Shaping, Unshapeable
from actors.json_depth import BODY_LEVELS_MAX, is_deep
from angarium.delivery.shaping.places import BYTES_A_STEP, STEPS_MAX, Place, Places, Steps, TooManySteps
from angarium.delivery.shaping.pointer_trees import KeptTrees, PointerTrees

PSEUDONYM_PREFIX = "ps_"
PSEUDONYM_LENGTH = 27
"""Characters of a pseudonym after its prefix: 162 bits, so no two values share one by chance."""

STEPS_A_PSEUDONYM = 15
"""Steps of a pseudonym, besides those of its value. It may be longer than that, all in a body by 290 kB."""
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
_trees = KeptTrees()


def shape(body: bytes, region: str, shaping: Shaping | Unshapeable) -> bytes | Unshapeable:
    """The shaped body of an event of that region. It is never the original for want of a transform or key."""
    if isinstance(shaping, Unshapeable):
        return shaping
    if shaping.transform.pseudonymize and not shaping.key:
        return Unshapeable("there is no key for its pseudonyms")
    if is_deep(body):
        return Unshapeable(f"it is nested deeper than {BODY_LEVELS_MAX}")
    trees, steps = _trees.of(shaping.transform), Steps()
    try:
        body.decode()
        value = _whole.decode(body)
        left = _Shape(steps, trees, shaping.key, region).shaped(value)
        return bytes(_NULL if left is None else left)
    except TooManySteps:
        return Unshapeable(f"its transform names too many places in it: more than {STEPS_MAX} steps")
    except (msgspec.DecodeError, UnicodeError):
        return Unshapeable("it is not JSON in UTF-8")


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


class _Shape:
    """Follows all lists in one walk: an index is that of the body as published, whatever goes before it."""

    def __init__(self, steps: Steps, trees: PointerTrees, key: bytes, region: str) -> None:
        self._steps, self._trees = steps, trees
        self._keep, self._drop, self._replace = Places(steps), Places(steps), Places(steps)
        self._key = key
        self._region = region.encode() + b"\0"

    def shaped(self, value: Raw) -> Raw | None:
        """The rest of the body; None if nothing is left."""
        trees = self._trees
        keep = None if trees.keep is None else self._keep.of((trees.keep,))
        drop = None if trees.drop is None else self._drop.of((trees.drop,))
        replace = None if trees.pseudonymize is None else self._replace.of((trees.pseudonymize,))
        return self._left(value, trees.keep is None, keep, drop, replace)

    def _left(
        self, value: Raw, is_kept: bool, keep: Place | None, drop: Place | None, replace: Place | None
    ) -> Raw | None:
        """The rest of a value that is not dropped itself; `is_kept`: all of it is kept. None: nothing."""
        if replace is not None and replace.ends:
            left = self._left(value, is_kept, keep, drop, None)
            return None if left is None else self._pseudonym(left)
        is_kept = is_kept or (keep is not None and keep.ends)
        if is_kept and drop is None and replace is None:
            self._steps.spend(1)
            return value
        if not is_kept and keep is None:
            return None
        inside = _inside(value, self._steps)
        if inside is None:
            return value if is_kept else None
        kept = None if is_kept or keep is None else self._keep.following(keep)
        dropped = None if drop is None else self._drop.following(drop)
        replaced = None if replace is None else self._replace.following(replace)
        if isinstance(inside, dict):
            members = dict[str, Raw]()
            for name, each in inside.items():
                goes = None if drop is None or dropped is None else dropped.get(name, drop.other)
                if goes is not None and goes.ends:
                    continue
                stays = None if keep is None or kept is None else kept.get(name, keep.other)
                becomes = None if replace is None or replaced is None else replaced.get(name, replace.other)
                whole = is_kept and goes is None and becomes is None
                left = each if whole else self._left(each, is_kept, stays, goes, becomes)
                if left is not None:
                    members[name] = left
            return Raw(_encoder.encode(members))
        count, elements = len(inside), list[Raw]()
        for each, stays, goes, becomes in zip(
            inside,
            repeat(None, count) if keep is None or kept is None else keep.by_index(kept, count),
            repeat(None, count) if drop is None or dropped is None else drop.by_index(dropped, count),
            repeat(None, count) if replace is None or replaced is None else replace.by_index(replaced, count),
            strict=True,
        ):
            if goes is not None and goes.ends:
                continue
            whole = is_kept and goes is None and becomes is None
            left = each if whole else self._left(each, is_kept, stays, goes, becomes)
            if left is not None:
                elements.append(left)
        return Raw(_encoder.encode(elements))

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
