"""Maintenance: a node regularly purges messages that are no longer needed, so that no stream fills up.

The owner of shard 0 purges for all shards. Every node makes sure that its shards hold no more than they need:

- A quiet shard would hold the journal by its last message. If the journal has continued without it, it
  appends an empty flush, which moves its checkpoint on. So quiet shards write only in proportion to the
  traffic of the others, once for every `JOURNAL_LAG_MAX` messages; an idle installation writes nothing.
- A receiver whose events are only in the stream would hold the deliveries from its last event on. So the
  position of its oldest waiting event is looked up.
- If a stream was recreated, the shard ends: its next claim will be refused, with the reason.
- If the deliveries are full and nothing is left to purge, the tenant that has the most waiting loses its
  oldest events, and this is recorded. The same holds for events that wait to be routed.
- A tenant with a quota gives up its oldest events and dead letters beyond it.
- Accepted events that belong to no shard become dead letters.
- The state of a removed receiver is forgotten as soon as none of its events can be left.
- Plans of replays and records of erasures that ended long ago are dropped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from itertools import count, cycle, islice
from typing import Literal, assert_never

from msgspec import Struct

from actors.errors import AngariumError
from actors.ids import tenant_of
from angarium.node.shard import NodeContext, Shard
from streams.erasing.old_erasures import drop_old_erasures
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.journal_feed.redacted_flushes import drop_redacted
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import ReasonLog, stream_info
from streams.resending.ended_replays import drop_ended_replays
from streams.storage.eviction import (
    EvictionOrder,
    EvictionOrders,
    SampledStream,
    samples_of,
)
from streams.storage.largest_tenants import tenants_near_quota
from streams.storage.purge import (
    is_full,
    is_short,
    purge_deliveries,
    purge_events,
    purge_journal,
    surplus,
)
from streams.storage.quotas import (
    SettledPrefixes,
    beyond_quota,
    drop_letters_beyond,
    unrouted_beyond_quota,
)
from streams.storage.settled_purge import purge_settled, purge_settled_of_tenants
from streams.storage.strays import bury_stray_deliveries, bury_stray_events, stray_filters
from streams.storage.unrouted import samples_of_events

ROUND_EVERY_S = 10.0
HURRIED_ROUND_EVERY_S = 2.0
"""Interval of the rounds while room is short."""
ROUNDS_PER_RECREATION_CHECK = 6
"""Rounds from one search for recreated streams to the next."""
JOURNAL_LAG_MAX = 16
"""Messages of the journal, for each existing shard, by which a shard may fall behind."""
LOOKED_UP_MAX = 16
"""Receivers of a shard that are looked up in one round."""
LEFTOVERS_EVERY_S = 3600.0
"""Time between two searches for leftovers of what was removed or ended long ago."""
QUOTAS_A_ROUND = 16
"""Tenants with a quota that are checked in one round: each takes some 70 requests if it is near it."""
DEPOSED_LEADER_MAX_S = 15.0
"""Time that is longer than a leader continues without followers (10 s, nats-server 2.15)."""
log = logging.getLogger(__name__)


def _log_fields(stream: StreamInfo, order: EvictionOrder) -> dict[str, object]:
    return {"stream": stream.name, "tenant": order.tenant, "below": order.below}


class StreamEnd:
    """The ends of a stream, noted each round; `certain_end` is one that every leader knows."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def certain_end(self, now: float, last: int) -> int:
        """Note the current end of the stream; returns one that it certainly reached, or 0."""
        self._seen.append((now, last))
        while len(self._seen) > 1 and self._seen[1][0] <= now - DEPOSED_LEADER_MAX_S:
            self._seen.popleft()
        at, end = self._seen[0]
        return end if at <= now - DEPOSED_LEADER_MAX_S else 0


class RoundPart(Struct, frozen=True):
    """A part of a round, by its name in the log.

    - `work`: does the part; if `by` is "shard", for a shard of this node.
    - `by`: who does it: each node, each node for each of its shards, or the owner of shard 0 for all.
    - `every`: the number of rounds from one time to the next.
    """

    name: str
    work: Callable[..., Awaitable[object]]
    by: Literal["node", "shard", "owner of shard 0"] = "node"
    every: int = 1


class Sweep:
    """A sweep over all keys of a kind, some of them in each round, and a long rest before the next one."""

    def __init__(
        self, drop: Callable[[JetStream, Names, float, int], Awaitable[int | None]], context: NodeContext
    ) -> None:
        self._drop = drop
        self._context = context
        self._rests_until = 0.0
        self._after = 0

    async def step(self) -> None:
        """Look at the next keys."""
        now, context = asyncio.get_running_loop().time(), self._context
        if now >= self._rests_until:
            after = await self._drop(context.js, context.names, context.time.wall(), self._after)
            self._after = after or 0
            if after is None:
                self._rests_until = now + LEFTOVERS_EVERY_S


class Maintenance:
    """The maintenance by one node. `owned` are the shards that are its own, as they come and go."""

    def __init__(self, context: NodeContext, shards: int, owned: Mapping[int, Shard]) -> None:
        self._context = context
        self._shards = shards
        self._owned = owned
        self._deliveries = StreamEnd()
        self._events = StreamEnd()
        self._events_kept_from = 0
        self._is_room_short = False
        self._sampled: SampledStream | None = None
        self._evictions = EvictionOrders()
        self._orders: list[EvictionOrder] = []
        self._sampled_events: SampledStream | None = None
        self._event_evictions = EvictionOrders()
        self._orders_unrouted: list[EvictionOrder] = []
        self._reason_logs: dict[str, ReasonLog] = {}
        self._letters_full = ReasonLog(context.js, log, "storage.full", stream=context.names.dead_letters)
        self._tenant_settings = context.routing.tenant_settings
        self._quotas = cycle(self._tenant_settings.with_quota)
        self._settled_prefixes = SettledPrefixes(context.js)
        self._leftovers_at = 0.0

    async def run(self) -> None:
        """Run until it is cancelled."""
        parts = self.parts()
        for number in count(1):
            await asyncio.sleep(HURRIED_ROUND_EVERY_S if self._is_room_short else ROUND_EVERY_S)
            self._orders, self._orders_unrouted = [], []
            for part in parts:
                if number % part.every == 0:
                    await self._do(part)

    def parts(self) -> tuple[RoundPart, ...]:
        """The parts of a round, in their order."""
        js, names = self._context.js, self._context.names
        return (
            RoundPart("stop_recreated", self._stop_recreated, every=ROUNDS_PER_RECREATION_CHECK),
            RoundPart("order_evicted_deliveries", self._order_evicted_deliveries),
            RoundPart("order_evicted_events", self._order_evicted_events),
            RoundPart("keep_quotas", self._keep_quotas),
            RoundPart("move_checkpoints_on", self._move_checkpoints_on),
            RoundPart("maintain", self._maintain, "shard"),
            RoundPart("bury_stray_deliveries", lambda: bury_stray_deliveries(js, names), "owner of shard 0"),
            RoundPart("bury_stray_events", self._bury_stray_events, "owner of shard 0"),
            RoundPart("purge_journal", lambda: purge_journal(js, names, self._shards), "owner of shard 0"),
            RoundPart("purge_deliveries", self._purge_deliveries, "owner of shard 0"),
            RoundPart("purge_settled", self._purge_settled, "owner of shard 0"),
            RoundPart("purge_events", self._purge_events, "owner of shard 0"),
            RoundPart("purge_routed", self._purge_routed, "owner of shard 0"),
            RoundPart("drop_redacted", self._drop_redacted, "owner of shard 0"),
            RoundPart(
                "drop_ended_replays", Sweep(drop_ended_replays, self._context).step, "owner of shard 0"
            ),
            RoundPart("drop_old_erasures", Sweep(drop_old_erasures, self._context).step, "owner of shard 0"),
            RoundPart("find_leftovers", self._find_leftovers),
        )

    async def _do(self, part: RoundPart) -> None:
        match part.by:
            case "node":
                await self._try(part.name, part.work)
            case "shard":
                for shard in self._working():
                    await self._try(part.name, part.work, shard)
            case "owner of shard 0":
                if self.epoch_of_shard_0() is not None:
                    await self._try(part.name, part.work)
            case _:
                assert_never(part.by)

    async def _try(self, part: str, work: Callable[..., Awaitable[object]], *shard: Shard) -> None:
        """Do one part of a round. If it fails, the others do not: without them the streams would fill up."""
        reason_log = self._reason_logs.setdefault(
            part, ReasonLog(self._context.js, log, "maintenance.failed", part=part)
        )
        try:
            await work(*shard)
        except AngariumError as error:
            reason_log.log_once(str(error))
        except Exception:  # The next round may succeed.
            log.exception("maintenance.broken")
        else:
            reason_log.clear()

    async def _find_leftovers(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._leftovers_at:
            self._leftovers_at = now + LEFTOVERS_EVERY_S
            for owned_shard in self._working():
                await owned_shard.snapshots.find_leftovers()

    def _working(self) -> list[Shard]:
        return [each for each in self._owned.values() if not (each.ended.is_set() or each.is_suspended)]

    def epoch_of_shard_0(self) -> int | None:
        """The epoch in which this node works for all, since it owns shard 0; None if it does not."""
        return next((each.claim.epoch for each in self._working() if each.number == 0), None)

    async def _order_evicted_deliveries(self) -> None:
        """Order the eviction of events if the deliveries are full.

        If the dead letters have no room, none does: an event is needed until its dead letter is stored.
        """
        js, names = self._context.js, self._context.names
        self._sampled = None
        deliveries = await stream_info(js, names.deliveries)
        self._is_room_short = is_short(deliveries)
        if not surplus(deliveries):
            self._evictions.next_order([], deliveries)  # What had no effect is forgotten.
            return
        self._sampled = await samples_of(js, names, deliveries)
        if await self._letters_are_full():
            return
        order = self._evictions.next_order(self._sampled.samples, deliveries, self._sampled.stray_bytes)
        if order is not None:
            log.warning("storage.full", extra=_log_fields(deliveries, order))
            self._orders.append(order)

    async def _order_evicted_events(self) -> None:
        """Order the eviction of events if their stream is full, before the producers of all are refused."""
        js, names = self._context.js, self._context.names
        self._sampled_events = None
        events = await stream_info(js, names.events)
        self._is_room_short |= is_short(events)
        if not surplus(events):
            self._event_evictions.next_order([], events)
            return
        self._sampled_events = await samples_of_events(js, names, events)
        if await self._letters_are_full():
            return
        sampled = self._sampled_events
        order = self._event_evictions.next_order(sampled.samples, events, sampled.stray_bytes)
        if order is not None:
            log.warning("storage.full", extra=_log_fields(events, order))
            self._orders_unrouted.append(order)

    async def _letters_are_full(self) -> bool:
        letters = await stream_info(self._context.js, self._context.names.dead_letters)
        if not is_full(letters):
            self._letters_full.clear()
            return False
        self._letters_full.log_once("no dead letter can be stored, so that no event can be evicted")
        return True

    async def _keep_quotas(self) -> None:
        """Look at some tenants with a quota: what they have beyond it is evicted or dropped.

        Those with one of their own are checked in turns; of all others, those that have most.
        """
        js, names = self._context.js, self._context.names
        with_quota, others = self._tenant_settings.with_quota, self._tenant_settings.for_all_others
        named = list(islice(self._quotas, min(QUOTAS_A_ROUND, len(with_quota))))
        if self.epoch_of_shard_0() is not None:
            letters, quota = await stream_info(js, names.dead_letters), others.dead_letters_max_bytes
            for tenant in await self._with_unnamed(named, letters, names.tenant_of_letter, quota):
                await self._drop_letters_beyond(tenant, letters)
        if await self._letters_are_full():
            return
        quota = others.backlog_max_bytes
        deliveries, events = await stream_info(js, names.deliveries), await stream_info(js, names.events)
        for tenant in await self._with_unnamed(named, deliveries, self._tenant_of_delivery, quota):
            await self._evict_deliveries_beyond(tenant, deliveries)
        for tenant in await self._with_unnamed(named, events, self._tenant_of_event, quota):
            await self._evict_unrouted_beyond(tenant, events)

    async def _with_unnamed(
        self, named: list[str], stream: StreamInfo, tenant_of: Callable[[str], str | None], quota: int | None
    ) -> list[str]:
        """The named tenants, and the largest of those that have no settings of their own."""
        near = await tenants_near_quota(self._context.js, stream, tenant_of, quota)
        unnamed = [each for each in near if each not in self._tenant_settings.by_name]
        return named + unnamed[:QUOTAS_A_ROUND]

    async def _drop_letters_beyond(self, tenant: str, letters: StreamInfo) -> None:
        if (quota := self._tenant_settings.for_tenant(tenant).dead_letters_max_bytes) is not None:
            dropped = await drop_letters_beyond(self._context.js, self._context.names, letters, tenant, quota)
            if dropped:
                log.warning("dead_letters.over_quota", extra={"tenant": tenant, "dropped": dropped})

    async def _evict_deliveries_beyond(self, tenant: str, deliveries: StreamInfo) -> None:
        if (quota := self._tenant_settings.for_tenant(tenant).backlog_max_bytes) is not None:
            order = await beyond_quota(
                self._context.js, self._context.names, deliveries, tenant, quota, self._settled_prefixes
            )
            if order is not None:
                log.warning("backlog.over_quota", extra=_log_fields(deliveries, order))
                self._orders.append(order)

    async def _evict_unrouted_beyond(self, tenant: str, events: StreamInfo) -> None:
        if (quota := self._tenant_settings.for_tenant(tenant).backlog_max_bytes) is not None:
            js, names, partition = self._context.js, self._context.names, partition_of(tenant, self._shards)
            order = await unrouted_beyond_quota(js, names, events, partition, tenant, quota)
            if order is not None:
                log.warning("backlog.over_quota", extra=_log_fields(events, order))
                self._orders_unrouted.append(order)

    def _tenant_of_delivery(self, subject: str) -> str | None:
        found = self._context.names.shard_and_receiver(subject)
        return None if found is None else tenant_of(found[1])

    def _tenant_of_event(self, subject: str) -> str | None:
        found = self._context.names.partition_and_tenant(subject)
        return None if found is None else found[1]

    async def _move_checkpoints_on(self) -> None:
        """Let quiet shards append an empty flush, so that they do not hold the journal."""
        journal = await stream_info(self._context.js, self._context.names.journal)
        for shard in self._working():
            if journal.last - shard.journal.position > JOURNAL_LAG_MAX * self._shards:
                shard.journal.flush_soon()

    async def _maintain(self, shard: Shard) -> None:
        for each in self._orders:
            shard.host.evict(each.tenant, each.below)
        for each in self._orders_unrouted:
            shard.evict_unrouted(each.tenant, each.below)
        await self._find_oldest(shard)

    async def _stop_recreated(self) -> None:
        """End the shards whose stream has been recreated since their recovery; they are claimed again."""
        js, names = self._context.js, self._context.names
        created = {name: (await stream_info(js, name)).created for name in names.streams}
        recreated: set[str] = set()
        for owned_shard in self._working():
            for name in [name for name in created if created[name] != owned_shard.created[name]]:
                await owned_shard.stop(f"{name} was recreated")
                recreated.add(name)
        if names.receivers in recreated:
            await self._context.configurations.read_again()

    async def _find_oldest(self, owned_shard: Shard) -> None:
        js, names, host = self._context.js, self._context.names, owned_shard.host
        for _ in range(LOOKED_UP_MAX):
            needed = host.needed()
            if needed.exact:
                return
            subject = names.delivery(owned_shard.number, needed.receiver)
            message = await js.next_message(names.deliveries, subject, needed.position)
            if message is None:
                return
            host.retention.note_oldest(needed.receiver, message.position)

    async def _purge_deliveries(self) -> None:
        js, names = self._context.js, self._context.names
        deliveries, now = await stream_info(js, names.deliveries), asyncio.get_running_loop().time()
        certain_end = self._deliveries.certain_end(now, deliveries.last)
        await purge_deliveries(js, names, self._shards, deliveries, self._keep_since(), certain_end)

    async def _purge_settled(self) -> None:
        """Purge by subject what is still too much: most may have gone by position since the samples."""
        if self._sampled is not None:
            js, names = self._context.js, self._context.names
            deliveries = await stream_info(js, names.deliveries)
            await purge_settled_of_tenants(js, names, deliveries, self._sampled, surplus(deliveries))
            still = surplus(await stream_info(js, names.deliveries))
            await purge_settled(js, names, self._sampled, still)

    async def _purge_events(self) -> None:
        js, names = self._context.js, self._context.names
        events, now = await stream_info(js, names.events), asyncio.get_running_loop().time()
        certain_end = self._events.certain_end(now, events.last)
        since, kept_from = self._keep_since(), self._events_kept_from
        await purge_events(js, names, self._shards, events, since, certain_end, kept_from)

    async def _purge_routed(self) -> None:
        """Purge routed events by subject: an event of a parked tenant keeps later ones of others.

        So are strays, if there are more than were buried: no other tenant is evicted for them.
        """
        if self._sampled_events is not None:
            js, names = self._context.js, self._context.names
            events = await stream_info(js, names.events)
            if surplus(events):
                for strays in stray_filters(names, self._sampled_events.stray_tenants):
                    await js.purge_subject(names.events, strays, events.last)
            still = surplus(await stream_info(js, names.events))
            await purge_settled(js, names, self._sampled_events, still)

    async def _drop_redacted(self) -> None:
        js, names = self._context.js, self._context.names
        await drop_redacted(js, names, (await stream_info(js, names.journal)).first)

    async def _bury_stray_events(self) -> None:
        tenants = self._sampled_events.stray_tenants if self._sampled_events else ()
        self._events_kept_from = await bury_stray_events(self._context.js, self._context.names, tenants)

    def _keep_since(self) -> float:
        return self._context.time.wall() - self._context.replay_keep_s
