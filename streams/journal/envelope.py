"""A flush: what one message of the journal says, and how it is written and read.

    {"v": 2, "node": …, "epoch": …, "flush": …, "floor": …, "at": …, "facts": [{"fact": "delivered", …}, …]}

A flush tells whose it is and which one, so that its owner knows it again when the acknowledgement was lost.
It also tells all that a claim must know of what lies before it, so that one read from the leader is enough:
the floor, `unclean`, the last claim that did not follow a release (left out while there was none), and
`marks`, the highest messages that the shard knows of the deliveries and of its events
(`streams.journal.tails`).
"""

from collections.abc import Sequence
from typing import get_args

import msgspec
from msgspec import Struct

from actors.errors import NewerVersion
from actors.machine.bucket import Unclean
from actors.machine.facts import AnyFact
from streams.journal.tails import UNKNOWN_MARKS, Marks
from streams.nats.errors import NotOurs
from streams.versions import UNREADABLE, read_versioned

VERSION = 2
"""1 had no marks, so a node that knows only that would leave them out of its claim, and all accepted losses
with them: positions that were given again would have old sources."""


class _Envelope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The members of a flush except its facts, in the order in which they are written.

    `flush` counts from 0, the claim, under each `epoch`. The deliveries up to `floor` are released by the
    facts up to and with these. `at` is the writer's wall clock, in seconds since the epoch, for people.
    """

    v: int
    node: str
    epoch: int
    flush: int
    floor: int
    at: float
    unclean: Unclean | None = None
    marks: Marks = UNKNOWN_MARKS


class Flush(_Envelope, frozen=True, kw_only=True, omit_defaults=True):
    """One flush: what its writer recorded at once."""

    facts: tuple[AnyFact, ...]


class _Written(_Envelope, frozen=True, kw_only=True, omit_defaults=True):
    """A flush whose facts are encoded already, each by itself, so that its size is known."""

    facts: list[msgspec.Raw]


class _Tag(Struct):
    fact: str


class _Outline(Struct):
    facts: list[_Tag]


_encoder = msgspec.json.Encoder()
_flush = msgspec.json.Decoder(Flush)
_outline = msgspec.json.Decoder(_Outline)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(AnyFact))


def encode_fact(fact: AnyFact) -> bytes:
    return _encoder.encode(fact)


def encode_flush(
    *,
    node: str,
    epoch: int,
    flush: int,
    floor: int,
    at: float,
    unclean: Unclean | None,
    marks: Marks = UNKNOWN_MARKS,
    facts: Sequence[bytes],
) -> bytes:
    """The message of a flush, of facts as `encode_fact` gave them."""
    return _encoder.encode(
        _Written(
            v=VERSION,
            node=node,
            epoch=epoch,
            flush=flush,
            floor=floor,
            at=at,
            unclean=unclean,
            marks=UNKNOWN_MARKS if marks == UNKNOWN_MARKS else marks,
            facts=[msgspec.Raw(fact) for fact in facts],
        )
    )


def message_id(shard: int, epoch: int, flush: int) -> str:
    """The message id by which JetStream knows a flush that comes twice."""
    return f"{shard}-{epoch}-{flush}"


def decode_flush(data: bytes, where: str) -> Flush:
    """Read the flush that lies at `where`.

    Raises `NewerVersion` for a newer envelope and for a kind of fact that is unknown here, since a fact
    that is skipped is a fact that is lost, and `NotOurs` for what is no flush at all.
    """
    try:
        return read_versioned(_flush, data, VERSION, where)
    except NotOurs as error:
        kind = _unknown_kind(data)
        if kind is None:
            raise
        raise NewerVersion(f"{where} holds a fact of the unknown kind {kind!r}: upgrade this node") from error


def _unknown_kind(data: bytes) -> str | None:
    """The first kind of fact, by its tag, that was written by a newer Angarium."""
    try:
        outline = _outline.decode(data)
    except UNREADABLE:
        return None
    return next((each.fact for each in outline.facts if each.fact not in _KNOWN), None)
