"""The inbox of a shard, and its owner, which keeps what the inbox passes on."""

from collections.abc import Callable

from actors.machine.event import Event
from streams.installation.topology import Names
from streams.lost_tails.comparison import Loss
from streams.lost_tails.marks import NO_MARK
from streams.nats.jetstream import JetStream
from streams.reading.inbox import Inbox
from streams.reading.pull_room import PullRoom
from streams.reading.reader import ReadingTerms
from tests.support.installation import shard
from tests.support.waiting import until

RECEIVER = "acme.billing"
SHARD = shard(RECEIVER)


class Owner:
    """The owner of the shard: it keeps what its inbox hands on."""

    def __init__(self, js: JetStream, names: Names, epoch: int = 1) -> None:
        self.events: list[tuple[str, Event]] = []
        self.malformed: list[tuple[str, int, str]] = []
        self.floor = 0
        self.read_floor: Callable[[], int] = lambda: self.floor
        self.within_lease = True
        self.broken: list[str] = []
        self.losses: list[Loss] = []
        self.known = NO_MARK
        self.refuse: Callable[[Event], bool] = lambda _: False
        self.inbox = Inbox(
            js,
            names,
            SHARD,
            epoch,
            ReadingTerms(
                may_read=lambda: self.within_lease,
                on_broken=self.broken.append,
                on_lost=self.losses.append,
                room=PullRoom(),
            ),
            on_event=self._take,
            on_malformed=self._take_malformed,
            floor=lambda: self.read_floor(),
            known_mark=lambda: self.known,
        )

    def _take(self, receiver: str, event: Event) -> None:
        if self.refuse(event):
            raise RuntimeError("refused")
        self.events.append((receiver, event))

    def _take_malformed(self, receiver: str, position: int, why: str) -> None:
        self.malformed.append((receiver, position, why))

    @property
    def positions(self) -> list[int]:
        return [event.position for _, event in self.events]

    async def has(self, count: int) -> None:
        await until(lambda: len(self.events) + len(self.malformed) >= count)

    async def reading(self, consumers: int = 1) -> None:
        await until(lambda: self.inbox.consumers >= consumers)
