"""A flush: what one message of the journal says, and how it is written and read.

    {"v": 1, "node": …, "epoch": …, "flush": …, "floor": …, "at": …, "facts": [{"fact": "delivered", …}, …]}

A flush tells whose it is and which one, so that its owner knows it again when the acknowledgement was lost. It
also tells all that a claim must know of what lies before it, so that one read from the leader is enough: the
floor, and `unclean`, the last claim that did not follow a release (left out while there was none).
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from actors.bucket import Unclean
from actors.errors import AngariumError, NewerVersion
from actors.facts import AnyFact

VERSION = 1


class ForeignFlush(AngariumError):
    """A message in the journal that no Angarium wrote."""


class Flush(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What its writer recorded at once.

    `flush` counts from 0, the claim, under each `epoch`. The deliveries up to `floor` are released by the facts
    up to and with these. `at` is the writer's wall clock, in seconds since the epoch, for people.
    """

    v: int
    node: str
    epoch: int
    flush: int
    floor: int
    at: float
    unclean: Unclean | None = None
    facts: tuple[AnyFact, ...]


class _Written(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A flush whose facts are encoded already: each is, when it is added, to know its size."""

    v: int
    node: str
    epoch: int
    flush: int
    floor: int
    at: float
    unclean: Unclean | None = None
    facts: list[msgspec.Raw]


class _Tag(Struct):
    fact: str


class _Outline(Struct):
    v: int
    facts: list[_Tag]


_encoder = msgspec.json.Encoder()
_flush = msgspec.json.Decoder(Flush)
_outline = msgspec.json.Decoder(_Outline)
_TAGS = frozenset(str(kind.__struct_config__.tag) for kind in AnyFact.__args__)


def encode_fact(fact: AnyFact) -> bytes:
    return _encoder.encode(fact)


def encode_flush(
    *, node: str, epoch: int, flush: int, floor: int, at: float, unclean: Unclean | None, facts: Sequence[bytes]
) -> bytes:
    """The message of a flush, of facts that `encode_fact` encoded."""
    return _encoder.encode(
        _Written(
            v=VERSION,
            node=node,
            epoch=epoch,
            flush=flush,
            floor=floor,
            at=at,
            unclean=unclean,
            facts=[msgspec.Raw(fact) for fact in facts],
        )
    )


def decode_flush(data: bytes) -> Flush:
    """Read a flush.

    Raises `NewerVersion` for a newer envelope or a fact of a kind unknown here, since a fact that is skipped is
    a fact that is lost, and `ForeignFlush` for what is no flush at all.
    """
    try:
        flush = _flush.decode(data)
    except msgspec.MsgspecError as error:
        raise _explained(data, error) from None
    _check_version(flush.v)
    return flush


def _check_version(version: int) -> None:
    if version > VERSION:
        raise NewerVersion(
            f"a flush of the journal has version {version}, this Angarium knows {VERSION}: upgrade this node"
        )


def _explained(data: bytes, error: msgspec.MsgspecError) -> AngariumError:
    """Why this is no flush that we know."""
    try:
        outline = _outline.decode(data)
        _check_version(outline.v)
    except msgspec.MsgspecError:
        return ForeignFlush(f"not a flush of the journal: {error}")
    except NewerVersion as newer:
        return newer
    unknown = sorted({each.fact for each in outline.facts} - _TAGS)
    if unknown:
        return NewerVersion(f"the journal holds facts of the unknown kind {unknown[0]!r}: upgrade this node")
    return ForeignFlush(f"not a flush of the journal: {error}")
