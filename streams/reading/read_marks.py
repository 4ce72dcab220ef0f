"""The marks of one reader: the highest messages that it knows, and those that have to be compared. Pure.

A reader trusts its consumer as long as nothing puts the order in doubt. After that, messages may be of
another stream: even those that were read in other ways at that time. The server of a stream may restart
without its tail while our connection to another server stays, and the consumer's silence is noticed only
after 3 s. So two messages are compared before the next consumer begins: the highest that is known, and the
highest that a trusted consumer itself has passed on.
"""

from streams.lost_tails.marks import NO_MARK, Mark, higher_mark
from streams.reading.reply_subject import DeliveryInfo


class ReadMarks:
    """The marks of one reader.

    - `newest`: the highest message of the current consumer. The reader sets it for each message, which costs
      no call.
    - `is_compared`: the stream was compared with the known messages, and nothing has put the order in doubt
      since.
    """

    __slots__ = ("_passed_on", "_seen", "is_compared", "newest")

    def __init__(self) -> None:
        self.is_compared = False
        self.newest: DeliveryInfo | None = None
        self._seen = NO_MARK
        self._passed_on = NO_MARK

    def highest(self, known: Mark) -> Mark:
        """The highest message that was ever passed on, or `known` in other ways."""
        newest, self.newest = self.newest, None
        if newest is not None and newest.position > self._seen.position:
            self._seen = Mark(position=newest.position, stored_at=newest.stored_at)
        return higher_mark(known, self._seen)

    def note(self, mark: Mark) -> None:
        """Note a message that was read in another way, from the stream of the present consumer."""
        self._seen = higher_mark(self._seen, mark)

    def doubt(self, known: Mark) -> None:
        """Remember the messages that are known now: later ones may be of another stream."""
        highest = self.highest(known)
        if self.is_compared:
            self._passed_on = self._seen
        self._seen, self.is_compared = highest, False

    def to_compare(self, known: Mark, after: int) -> tuple[Mark, ...]:
        """The messages that the stream must still have, each once; of the one at `after` no time is known."""
        return tuple(dict.fromkeys((self._passed_on, higher_mark(self.highest(known), Mark(position=after)))))
