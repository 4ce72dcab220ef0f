"""Support for tests of membership: a JetStream that may miss heartbeats, and heartbeats made by hand."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec.structs import replace

from actors.errors import Unavailable
from streams.fleet.lease import LEASE_MARGIN_S
from streams.fleet.members import Member, Members
from streams.installation.topology import Names
from streams.nats.answers import Page, StoredMessage
from streams.nats.jetstream import JetStream
from tests.contract.support.faults import FaultyJetStream
from tests.support.waiting import until

TTL_S = 5.0
DEAD_S = TTL_S + LEASE_MARGIN_S
ROUND_S = 0.02

Join = Callable[..., Awaitable[Members]]


class BucketReads(FaultyJetStream):
    """Counts the reads of the bucket, or answers none while `blind`; may know nothing newer.

    `revived`: messages that are shown, too, as by a server that was killed.
    """

    revived: tuple[StoredMessage, ...] = ()
    blind = False
    knows_up_to: int | None = None
    reads = 0
    asked_blind = 0

    async def last_of(self, stream: str, subjects: Sequence[str], timeout_s: float = 5.0) -> Page:
        if self.blind:
            self.asked_blind += 1
            raise Unavailable("no leader")
        page = await super().last_of(stream, subjects, timeout_s)
        if self.knows_up_to is not None:
            page = replace(page, up_to=self.knows_up_to)
        self.reads += 1
        return replace(page, messages=[*page.messages, *self.revived])

    async def another_read(self) -> None:
        """Return when one that begins now has ended."""
        ends = self.reads + 2
        await until(lambda: self.reads >= ends)


async def show(
    js: JetStream,
    names: Names,
    node: str,
    heartbeat: int = 1,
    ttl_s: float = 0.0,
    run: str = "",
    placement: int = 0,
) -> None:
    """A heartbeat of another node, made by hand; `placement` 0 is that of an older version."""
    member = Member(
        node=node, started_at=0.0, version="1", heartbeat=heartbeat, ttl_s=ttl_s, run=run, placement=placement
    )
    await js.publish(names.node(node), msgspec.json.encode(member))
