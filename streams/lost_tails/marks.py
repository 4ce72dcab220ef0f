"""Marks: the highest messages of its streams that a shard knows, as flushes and checkpoints contain them."""

from msgspec import Struct, field


class Mark(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A message of a stream, and when the server stored it; 0.0 if only its position is known."""

    position: int = 0
    stored_at: float = 0.0


class SourceOffset(Struct, frozen=True, gc=False, kw_only=True):
    """An accepted loss of events: `offset` is added to the sources of events above the position."""

    above: int
    offset: int


class Marks(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The highest messages that a shard knows: of the deliveries, and of its partition of the events.

    `source_offsets` are the losses of events that were accepted, the lowest position first.
    """

    deliveries: Mark = Mark()
    events: Mark = Mark()
    source_offsets: tuple[SourceOffset, ...] = field(name="restarts", default=())

    def raised(self, other: "Marks") -> "Marks":
        """The higher marks of both, stream by stream; usually `self`, since the other has nothing higher."""
        rose = (
            other.deliveries.position > self.deliveries.position
            or other.events.position > self.events.position
            or (other.source_offsets and not self.source_offsets)
        )
        if not rose:
            return self
        return Marks(
            deliveries=higher_mark(self.deliveries, other.deliveries),
            events=higher_mark(self.events, other.events),
            source_offsets=self.source_offsets or other.source_offsets,
        )

    def source(self, position: int) -> int:
        """The source that copies of the event at that position carry; it is above all earlier ones.

        Lost positions are used again, and receivers may have seen the sources that belonged to them.
        """
        return position + max(
            (each.offset for each in self.source_offsets if position > each.above), default=0
        )


UNKNOWN_MARKS = Marks()
NO_MARK = UNKNOWN_MARKS.deliveries
"""No message."""


def higher_mark(one: Mark, other: Mark) -> Mark:
    """The mark with the higher position; the first if both are the same."""
    return other if other.position > one.position else one
