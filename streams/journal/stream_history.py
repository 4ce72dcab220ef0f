"""History of a shard: what its journal ever said of the streams, and how much is still true."""

import math
from collections.abc import Iterable
from functools import partial

from actors.machine.numbering import Numbered
from streams.installation.topology import Names
from streams.journal.checkpoint import read_checkpoint
from streams.journal.envelope import decode_flush
from streams.journal.tails import Mark, Marks
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info, until_answered


class StreamHistory:
    """All marks of one shard. `latest` are those recorded last, the others all known messages of a stream."""

    def __init__(self) -> None:
        self.latest = Marks()
        self.deliveries: set[Mark] = set()
        self.events: set[Mark] = set()

    def add(self, marks: Marks) -> None:
        """Marks that were recorded. Where they fall, a loss was accepted: what lay beyond is of no use."""
        if marks.deliveries.position < self.latest.deliveries.position:
            self.deliveries = _up_to(marks.deliveries, self.deliveries)
        if marks.events.position < self.latest.events.position:
            self.events = _up_to(marks.events, self.events)
        self.latest = Marks(deliveries=marks.deliveries, events=marks.events, restarts=marks.restarts)
        self.deliveries.add(marks.deliveries)
        self.events.add(marks.events)


async def read_history(js: JetStream, names: Names, shard: int) -> StreamHistory:
    """Read the whole journal of the shard. Raises `NewerVersion` and `NotOurs`."""
    history, subject, at = StreamHistory(), names.journal_of(shard), 0
    checkpoint = await read_checkpoint(js, names, shard)
    while page := (await until_answered(partial(js.read, names.journal, subject, at + 1))).messages:
        for message in page:
            at = message.sequence
            if checkpoint is not None and at > checkpoint.sequence:
                history.add(checkpoint.known)
                checkpoint = None
            flush = decode_flush(message.data, f"message {at} of {names.journal}")
            history.add(flush.marks)
            for fact in flush.facts:
                for event in getattr(fact, "events", ()):
                    if isinstance(event, Numbered):
                        history.deliveries.add(Mark(position=event.position, stored_at=event.stored_at))
    if checkpoint is not None:
        history.add(checkpoint.known)
    last = await until_answered(lambda: js.last_message(names.journal, subject))
    if last is not None:  # By the leader: a replica may lag.
        history.add(decode_flush(last.data, f"message {last.sequence} of {names.journal}").marks)
    return history


def _up_to(mark: Mark, marks: set[Mark]) -> set[Mark]:
    return {each for each in marks if each.position <= mark.position}


async def last_same(js: JetStream, stream: str, marks: Iterable[Mark], lost: Mark) -> tuple[Mark, bool]:
    """The highest of these messages that the stream still has, or the place before its first one; and whether
    it has another one in the place of any.

    `lost` is a message that it has not. Of the messages below that which are as old, all are the same up to
    where the tail was lost, and beyond none is: so half of them are left at each look. A younger one was read
    by a node that did not know yet that the tail was lost. An empty place, where a message was deleted by
    hand, proves neither.
    """
    info = await stream_info(js, stream)
    known = sorted(
        (each for each in marks if info.first <= each.position <= info.last and _is_older(each, lost)),
        key=lambda each: each.position,
    )
    low, high = 0, len(known)
    while low < high:
        middle = (low + high) // 2
        mark = known[middle]
        message = await until_answered(partial(js.message, stream, mark.position))
        if message is None:
            del known[middle]
            high -= 1
        elif message.stored_at == mark.stored_at:
            low = middle + 1
        else:
            high = middle
    return known[low - 1] if low else Mark(position=info.first - 1), high < len(known)


def _is_older(mark: Mark, lost: Mark) -> bool:
    """Compare two messages: is `mark` the lost one, or older and before it, in the same stream?"""
    return mark.position <= lost.position and 0.0 < mark.stored_at <= (lost.stored_at or math.inf)
