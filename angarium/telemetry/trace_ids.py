"""Ids of traces and spans, derived from names and numbers alone.

Each owner of a receiver, and each reader of its facts, derives the same ids. So the `traceparent` that an
attempt sent is the id of the span that is exported once the attempt is recorded, and a takeover continues in
the same trace.
"""

from collections.abc import Callable
from hashlib import blake2b

from msgspec import Struct

DELIVERY_ORDINAL = 0
"""The ordinal of the span of a whole delivery; attempts count from 1."""
SAMPLED_FLAG = 1
ROUTE = "route"
"""The last part of the id of a routing span: no attempt has this ordinal."""

Sampler = Callable[[int], bool]
"""A decision, by the trace id alone, whether a trace is exported that no producer has decided on."""


class TraceContext(Struct, frozen=True, gc=False):
    """The trace of an event, and the producer's span in it; `parent` is 0 without a producer's trace."""

    trace: int
    parent: int
    flags: int

    @property
    def is_sampled(self) -> bool:
        """True if the spans of this trace are exported."""
        return bool(self.flags & SAMPLED_FLAG)


def trace_context(addressee: str, event_id: str, traceparent: str, sampler: Sampler) -> TraceContext:
    """The producer's trace, with the producer's decision; or else a trace derived from addressee and event.

    The addressee is the receiver of a direct send, and the tenant of a fan-out: all its copies are in one
    trace.
    """
    if traceparent:
        _, trace, parent, flags = traceparent.split("-")
        return TraceContext(int(trace, 16), int(parent, 16), int(flags, 16))
    derived = _derive(16, addressee, event_id)
    return TraceContext(derived, 0, SAMPLED_FLAG if sampler(derived) else 0)


def route_span_id(tenant: str, source: int, event_id: str) -> int:
    """The span of the routing of an event, which each owner of a copy derives from the copy."""
    return _derive(8, tenant, event_id, str(source), ROUTE)


def span_id(receiver: str, sequence: int | None, ordinal: int, event_id: str) -> int:
    """The span of an attempt or of a delivery; `sequence` is None for a ping, which is known by its id."""
    return _derive(8, receiver, event_id if sequence is None else str(sequence), str(ordinal))


def batch_span_ids(receiver: str, first: int, last: int, ordinal: int) -> tuple[int, int]:
    """The trace of a POST of several events, by its first and last number, and the span of one attempt."""
    numbers = f"{first}-{last}"
    return _derive(16, receiver, numbers), _derive(8, receiver, numbers, str(ordinal))


def unexported_span_id(receiver: str, sequence: int | None, ordinal: int) -> int:
    """An id for an attempt whose span is never exported: no one has to derive it, so it is made quickly."""
    return hash((receiver, sequence, ordinal)) & 0xFFFF_FFFF_FFFF_FFFF or 1


def always(trace: int) -> bool:
    """Samples every trace."""
    return True


def never(trace: int) -> bool:
    """Samples no trace."""
    return False


def ratio(fraction: float) -> Sampler:
    """Samples this fraction of the traces, the same ones as OpenTelemetry's `traceidratio`."""
    bound = round(fraction * (1 << 64))
    return lambda trace: trace & 0xFFFF_FFFF_FFFF_FFFF < bound


def _derive(size: int, *parts: str) -> int:
    """A number of `size` bytes that is not 0, which W3C Trace Context forbids."""
    return int.from_bytes(blake2b("\0".join(parts).encode(), digest_size=size).digest()) or 1
