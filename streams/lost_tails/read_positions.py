"""Read positions: how far a stream was read. That of a bucket is compared after each lost connection.

A bucket may lose its tail with the server's power, be restored to an older state, or be recreated. Then its
positions are used again, so a position alone does not tell which messages are known. The message there
does: if there is another message, or none, the bucket has to be read from its beginning. There is none either
if its key has a newer value; then the bucket is read again in vain, but buckets are small. A bucket may also
be recreated while the connection lives on: then its time of creation differs.
"""

import asyncio

from msgspec import Struct

from actors.errors import Unavailable
from streams.lost_tails.marks import NO_MARK, Mark
from streams.nats.jetstream import JetStream


class ReadPosition(Struct, frozen=True, kw_only=True):
    """The last message that was read from a stream; by default none.

    `created`: when the stream was created; another value means another stream of the same name.
    """

    created: str = ""
    mark: Mark = NO_MARK

    @property
    def position(self) -> int:
        return self.mark.position


BEGINNING = ReadPosition()


class BucketPosition:
    """The position `read_to` in a bucket, up to which it was read."""

    def __init__(self, js: JetStream, stream: str, read_to: ReadPosition = BEGINNING) -> None:
        self.read_to = read_to
        self._js = js
        self._stream = stream
        self._compared = -1
        self._doubtful_since: float | None = None

    @property
    def position(self) -> int:
        return self.read_to.position

    def move(self, mark: Mark) -> None:
        """Continue to a message that was read."""
        self.read_to = ReadPosition(created=self.read_to.created, mark=mark)

    async def check_created(self) -> None:
        """Doubt the position if the bucket has been recreated. Raises as `compare` does."""
        if self.is_doubtful:
            return  # Compared anyway.
        info = await self._js.existing_stream(self._stream)
        if info.created != self.read_to.created:
            self.doubt()

    def start_over(self) -> None:
        """Go back to the beginning, and compare before the next read."""
        self.read_to, self._compared = BEGINNING, -1

    def doubt(self) -> None:
        """Compare before the next read."""
        self._compared = -1

    @property
    def is_doubtful(self) -> bool:
        """True if the connection was lost since the last comparison: messages may be of another bucket."""
        return self._compared != self._js.connection_changes

    async def compare(self) -> bool:
        """Compare if it is doubtful. Returns False if the bucket has to be read again, after a `start_over`.

        Raises `Unavailable`, and `ApiError` if there is no such bucket.
        """
        if not self.is_doubtful:
            return True
        now, changes = asyncio.get_running_loop().time(), self._js.connection_changes
        if self._doubtful_since is None:
            self._doubtful_since = now
        info = await self._js.existing_stream(self._stream)
        mark, same_bucket = self.read_to.mark, info.created == self.read_to.created
        there = not mark.position
        if mark.position > info.last and same_bucket:
            if now - info.heard_s < self._doubtful_since:
                raise Unavailable(f"the leader of {self._stream} that answered may be deposed")
        elif mark.position and same_bucket:
            message = await self._js.message(self._stream, mark.position)
            there = message is not None and message.stored_at == mark.stored_at
        self.read_to = ReadPosition(created=info.created, mark=mark if there else NO_MARK)
        self._compared, self._doubtful_since = changes, None
        return there
