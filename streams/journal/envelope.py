"""A flush: the content of one journal message, and how it is written and read.

    {"v": 4, "node": …, "epoch": …, "flush": …, "floor": …, "routed": …, "tenants": {…}, "at": …,
     "facts": [{"fact": "delivered", …}, …]}

A flush names its owner and its number, so that the owner recognises it if the acknowledgement was lost. It
also contains everything that a claim must know about earlier flushes, so that one read from the leader is
enough: the floor; how far the events of its partition are routed, with the parked tenants that this leaves
out; the last claim that did not follow a release (`unclean`, left out if there was none); and the highest
messages of the deliveries and of its events that the shard knows (`marks`, `streams.lost_tails`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from actors.errors import NewerVersion
from actors.machine.bucket import Unclean
from actors.machine.facts import AnyFact
from streams.journal.routing_progress import RoutingProgress, recorded_progress
from streams.lost_tails.marks import UNKNOWN_MARKS, Marks
from streams.nats.errors import NotOurs
from streams.versions import UNREADABLE, read_versioned

VERSION = 5
VERSION_WITHOUT_GROUPS = 4
"""Version 1 had no marks. A node that knows only version 1 would leave them, and with them all accepted
losses, out of its claim: positions that are used again would then have old sources. Version 2 had no
`routed`, which only the durable consumers of its time knew. Version 3 had no parked tenants: a node that
knows only version 3 would not read what `routed` leaves out. Version 4 had no batches: a node that knows only
version 4 would try the events of a failed POST one by one. It is still written, unless there are such events:
then one can go back to a node that knows only version 4 until a receiver gets batches."""


class _Envelope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The members of a flush except its facts, in the order in which they are written.

    - `flush`: counts from 0, the claim, in each `epoch`.
    - `floor`: the facts up to and including these release the deliveries up to here.
    - `routed`, `parked_tenants`: `routing`, flat; `routed` is unknown before version 3.
    - `at`: time by the writer's wall clock, in seconds since 1970, for people.
    """

    v: int
    node: str
    epoch: int
    flush: int
    floor: int
    routed: int | UnsetType = UNSET
    parked_tenants: Mapping[str, int] = field(name="tenants", default_factory=dict)
    at: float
    unclean: Unclean | None = None
    marks: Marks = UNKNOWN_MARKS

    @property
    def routing(self) -> RoutingProgress | None:
        """The progress of routing; None before version 3."""
        return recorded_progress(self.routed, self.parked_tenants)


class Flush(_Envelope, frozen=True, kw_only=True, omit_defaults=True):
    """One flush: the facts that its writer recorded together."""

    facts: tuple[AnyFact, ...]


class _Written(_Envelope, frozen=True, kw_only=True, omit_defaults=True):
    """A flush whose facts are already encoded, each by itself, so that its size is known."""

    facts: list[msgspec.Raw]


class _Tag(Struct):
    fact: str


class _Outline(Struct):
    facts: list[_Tag]


_encoder = msgspec.json.Encoder()
encode_fact: Callable[[AnyFact], bytes] = _encoder.encode
_flush = msgspec.json.Decoder(Flush)
_outline = msgspec.json.Decoder(_Outline)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(AnyFact))


def encode_flush(
    *,
    node: str,
    epoch: int,
    flush: int,
    floor: int,
    routing: RoutingProgress,
    at: float,
    unclean: Unclean | None,
    marks: Marks = UNKNOWN_MARKS,
    facts: Sequence[bytes],
    groups: bool = False,
) -> bytes:
    """The message of a flush, with facts as `encode_fact` returned them.

    `groups`: one of them says which events of a failed POST are tried together.
    """
    return _encoder.encode(
        _Written(
            v=VERSION if groups else VERSION_WITHOUT_GROUPS,
            node=node,
            epoch=epoch,
            flush=flush,
            floor=floor,
            routed=routing.routed,
            parked_tenants=routing.parked_tenants,
            at=at,
            unclean=unclean,
            marks=UNKNOWN_MARKS if marks == UNKNOWN_MARKS else marks,
            facts=[msgspec.Raw(fact) for fact in facts],
        )
    )


def reencode_flush(flush: Flush) -> bytes:
    """The message of a flush that was decoded, with the facts that it has now."""
    return _encoder.encode(flush)


def message_id(shard: int, epoch: int, flush: int) -> str:
    """The message id by which JetStream recognises a flush that comes twice."""
    return f"{shard}-{epoch}-{flush}"


def decode_flush(data: bytes, where: str) -> Flush:
    """Decode the flush found at `where`.

    Raises `NewerVersion` for a newer envelope and for an unknown kind of fact, since a fact that is skipped
    is lost; raises `NotOurs` if the data is not a flush.
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
