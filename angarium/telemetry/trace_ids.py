"""Ids of traces and spans, derived from names and numbers alone.

Each owner of a receiver, and each reader of its facts, derives the same ids. So the `traceparent` that an
attempt sent is the id of the span that is exported once the attempt is recorded, and a takeover continues in
the same trace.
"""

from collections.abc import Callable
from hashlib import blake2b

from msgspec import Struct

from actors.machine.event import Event

DELIVERY_ORDINAL = 0
"""The ordinal of the span of a whole delivery; attempts count from 1."""
SAMPLED_FLAG = 1

Sampler = Callable[[int], bool]
"""A decision, by the trace id alone, whether a trace is exported that no producer has decided on."""


class TraceContext(Struct, frozen=True, gc=False):
    """The trace of an event, and the producer's span in it; `parent` is 0 without a producer's trace."""

    trace: int
    parent: int
    flags: int

    @property
    def sampled(self) -> bool:
        """True if the spans of this trace are exported."""
        return bool(self.flags & SAMPLED_FLAG)


def trace_context(receiver: str, event: Event, sampler: Sampler) -> TraceContext:
    """The producer's trace, with the producer's decision; or else a trace derived from receiver and event."""
    if event.traceparent:
        _, trace, parent, flags = event.traceparent.split("-")
        return TraceContext(int(trace, 16), int(parent, 16), int(flags, 16))
    derived = _derive(16, receiver, event.id)
    return TraceContext(derived, 0, SAMPLED_FLAG if sampler(derived) else 0)


def span_id(receiver: str, sequence: int | None, ordinal: int, event_id: str) -> int:
    """The span of an attempt or of a delivery; `sequence` is None for a ping, which is known by its id."""
    return _derive(8, receiver, event_id if sequence is None else str(sequence), str(ordinal))


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
