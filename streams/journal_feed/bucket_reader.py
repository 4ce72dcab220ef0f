"""Reads the configurations of receivers in the order of their bucket, as many as it still has.

The bucket drops older values by itself, so a value that was put and replaced while no ledger ran is missing
here.
"""

from msgspec import Struct

from streams.buckets.follower import is_removal
from streams.buckets.stored_configurations import changed_by
from streams.installation.topology import Names
from streams.lost_tails.marks import Mark
from streams.lost_tails.places import BucketPlace, StreamPlace
from streams.nats.jetstream import JetStream
from streams.nats.retry import until_answered


class PutConfiguration(Struct, frozen=True):
    """A configuration that was put, or None if it was removed; `by`: who did that, if it is known."""

    receiver: str
    revision: int
    stored_at: float
    raw: bytes | None
    by: str


class BucketReader:
    """Reads on from a place; a bucket that was recreated or lost its tail is read from its beginning."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._stream = names.receivers
        self._prefix = names.receiver("")
        self._place: BucketPlace | None = None

    async def read(self, place: StreamPlace) -> tuple[StreamPlace, list[PutConfiguration]]:
        """Read the values after the place; returns them and the place where to continue. Waits for NATS."""
        known = self._place = compared_place(self._js, self._stream, place, self._place)
        while True:
            await until_answered(known.compare)
            page = await until_answered(
                lambda: self._js.read(self._stream, f"{self._prefix}>", known.position + 1)
            )
            if not known.doubtful:
                break  # Otherwise these messages may be from another bucket.
        puts = [
            PutConfiguration(
                each.subject.removeprefix(self._prefix), each.sequence, each.stored_at,
                None if is_removal(each) else each.data, changed_by(each),
            )
            for each in page.messages
        ]  # fmt: skip
        if puts:
            known.move(Mark(position=puts[-1].revision, stored_at=puts[-1].stored_at))
        return known.read_to, puts


def compared_place(
    js: JetStream, stream: str, read_to: StreamPlace, known: BucketPlace | None
) -> BucketPlace:
    """The stored place as one that is compared; the one known so far if it is the same."""
    return known if known is not None and known.read_to == read_to else BucketPlace(js, stream, read_to)
