"""A partition whose events and reader are made up, for whatever reads events by the subject of a tenant."""

import asyncio
from collections.abc import Callable
from typing import cast

from msgspec import Struct

from streams.installation.topology import Names
from streams.nats.answers import Page, StoredMessage
from streams.nats.jetstream import JetStream
from streams.reading.reader import Reader

NAMES = Names()
PARTITION = 3


class TrustedReader(Struct):
    """The reader of the partition: the consumer that it trusts, if it trusts one."""

    trusted_consumer: int | None = 1

    def as_reader(self) -> Reader:
        return cast(Reader, self)


class ReadOfEvents(Struct, frozen=True):
    """One read of the stream: its bounds, and when it came."""

    at: float
    tenant: str
    above: int
    count_max: int
    bytes_max: int


class MadeUpEvents:
    """The stream: `tenants[n]` has published the event at position n + 1.

    - `reads`: all that were asked for; `under_way_max`: how many at the same time, at most.
    - `before_answer`: called before each answer, which takes `takes_s`.
    """

    is_disturbed = False

    def __init__(self, *tenants: str) -> None:
        self.tenants = list(tenants)
        self.reads: list[ReadOfEvents] = []
        self.takes_s = 0.0
        self.under_way = self.under_way_max = 0
        self.before_answer: Callable[[], None] = lambda: None

    def as_jetstream(self) -> JetStream:
        return cast(JetStream, self)

    async def reconnected(self, within_s: float) -> bool:
        await asyncio.sleep(within_s)
        return False

    async def read(self, _: str, subject: str, sequence: int, count_max: int, bytes_max: int) -> Page:
        at = asyncio.get_running_loop().time()
        self.reads.append(ReadOfEvents(at, tenant_of(subject), sequence - 1, count_max, bytes_max))
        self.under_way += 1
        self.under_way_max = max(self.under_way, self.under_way_max)
        await asyncio.sleep(self.takes_s)
        self.under_way -= 1
        self.before_answer()
        found = self._since(sequence, tenant_of(subject))
        return Page(found[:count_max], len(found[count_max:]))

    async def next_message(self, _: str, subject: str, sequence: int) -> StoredMessage | None:
        return next(iter(self._since(sequence, tenant_of(subject))), None)

    def _since(self, sequence: int, tenant: str) -> list[StoredMessage]:
        return [
            StoredMessage(NAMES.event(PARTITION, tenant, "order"), position, float(position), {}, b"")
            for position, each in enumerate(self.tenants, 1)
            if each == tenant and position >= sequence
        ]


def tenant_of(subject: str) -> str:
    """The tenant whose events have that subject, in this partition."""
    before, _, tenant = subject.removesuffix(".>").rpartition(".")
    assert f"{before}." == NAMES.event(PARTITION, "", "").removesuffix(".")
    return tenant
