"""A read of the backlog, sifted: which events are new, and whether one that was there is gone."""

from msgspec import Struct

from actors.machine.event import Event
from actors.ports import Batch


class Found(Struct, frozen=True):
    """New events in stream order, how far the stream is read with them, and which positions lost theirs.

    What is gone is recorded only when all before it is settled; until then, the read ends in front of it.
    """

    events: list[Event]
    read_to: int
    gone: tuple[int, int] | None = None


def sift(batch: Batch, *, reach: int, read_to: int, known: int) -> Found:
    """Finds what is new in `batch`, which was to reach `reach` from where it was read before, `read_to`.

    `known` is the highest position, at most `reach`, where an event of this receiver was seen for certain.
    """
    events = [each for each in batch.events if each.position > read_to]
    end = events[-1].position if events else read_to
    if known <= read_to or any(each.position == known for each in events):
        return Found(events, max(end, reach) if batch.complete else end)
    before = [each for each in events if each.position < known]
    end = before[-1].position if before else read_to
    certain = batch.complete or len(before) < len(events)
    return Found(before, end, (end + 1, known) if certain else None)
