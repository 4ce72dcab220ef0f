"""A node of the fleet: it sends heartbeats, owns its share of the shards, and delivers to their receivers.

Membership says which node should own a shard, the claim says which one may, and the journal's fence says
which one does. This file only brings the first two together, again and again, until the node owns the shards
that it should.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Set
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple

from actors.configuration.policy import Policy
from actors.errors import Unavailable, Unusable
from actors.runtime.host import Host
from angarium.node.housekeeping.eraser import Eraser
from angarium.node.housekeeping.maintenance import Maintenance
from angarium.node.shard import NodeContext, Shard, take_over
from streams.fleet.handover_turns import HandoverTurns
from streams.installation.partitions import shard_of_receiver
from streams.journal.claim import Claim, NotOwned, claim, give_up_claim, release
from streams.journal.refusal import RecordedLoss, refuse
from streams.lost_tails.comparison import Loss
from streams.nats.errors import ApiError
from streams.nats.retry import GatheredReasonLog

RECONCILE_EVERY_S = 0.5
RETRY_REFUSED_AFTER_S = 30.0
"""Pause before a refused shard is tried again: each try records a claim, and only an operator can help."""
CLAIMS_AT_ONCE = 8
RESUMES_AT_ONCE = 64
"""Resumed claims at a time: a shard that continues from memory loads nothing, and sends twenty short
requests."""
CLAIMS_TIMEOUT_S = 2.0
"""Time that a stopping node waits for claims under way, so that it can hand these shards over, too."""
log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Node:
    """A node, which is one process. `start` returns when it is a member; `stop` hands everything over."""

    def __init__(self, context: NodeContext, shards: int) -> None:
        self.context = context
        self.shards = shards
        self.owned: dict[int, Shard] = {}
        self.refused: dict[int, str] = {}
        self._retry_refused_at: dict[int, float] = {}
        self._claiming = asyncio.Semaphore(CLAIMS_AT_ONCE)
        self._resuming = asyncio.Semaphore(RESUMES_AT_ONCE)
        self._turns = HandoverTurns(context.drain_s / 2)
        self._heard = asyncio.Event()
        self._moves: Counter[str] = Counter()
        self._was_ready = False
        self._reconcile_now = asyncio.Event()
        self._readiness_changed = asyncio.Event()
        self._stopping = False
        self._joining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._maybe_held: set[int] = set()

    async def start(self) -> None:
        """Become a member and begin to claim."""
        context = self.context
        context.configurations.on_change(self._configuration_changed)
        context.members.on_change(self._reconcile_now.set)
        context.members.on_change(self._readiness_changed.set)
        context.members.on_lapse(self._reconcile_now.set)
        context.members.on_lease(self._reconcile_now.set)
        context.members.on_change(self._heard.set)
        context.members.on_others(self._on_other_heartbeat)
        context.members.owned = self._delivering_shards
        context.members.has_outage = lambda: context.has_outage
        if context.down_hosts is not None:
            context.down_hosts.on_turn(self._wake)
        if context.outage is not None:
            context.outage.on_change(self._outage_changed)
        self._joining = True
        await context.members.start()
        self._spawn(self._reconcile())
        maintenance = Maintenance(context, self.shards, self.owned)
        self._spawn(maintenance.run())
        eraser = Eraser(
            context.js, context.names, context.configurations.stored, context.time.wall,
            self.shards, maintenance.epoch_of_shard_0,
        )  # fmt: skip
        self._spawn(eraser.run())

    async def stop(self) -> None:
        """Hand over every shard, also those that are just being claimed, then leave.

        The others claim each shard as soon as it is released: they know that this node is to be left out.
        A shard that waits for its turn to be handed over delivers meanwhile.
        """
        self._stopping = True
        self._reconcile_now.set()
        if self._joining and self.context.js.wire.is_connected:
            await self.context.members.set_draining(True)
        await self._until_claims_end()
        await asyncio.gather(*(self._hand_over(*owned) for owned in list(self.owned.items())))
        await self._until_claims_end()
        await self.context.members.leave()
        self._log_moves()
        for task in list(self._tasks):
            task.cancel()

    async def _until_claims_end(self) -> None:
        """Wait for claims under way, if they may end soon."""
        if self._under_way and self.context.js.wire.is_connected:
            await asyncio.wait(self._under_way.values(), timeout=CLAIMS_TIMEOUT_S)

    @property
    def is_stopping(self) -> bool:
        """True once `stop` was called: it hands its shards over, or has done so."""
        return self._stopping

    @property
    def is_ready(self) -> bool:
        """True if the node owns every shard that it should."""
        return set(self.context.members.wanted_shards(self.shards)) <= self.owned.keys()

    async def until_ready(self) -> None:
        """Return once every configuration is known and every wanted shard owned, which is logged by then."""
        await self.context.configurations.until_complete()
        while not self.is_ready:
            self._readiness_changed.clear()
            await self._readiness_changed.wait()
        self._was_ready = True
        self._log_moves()

    def shard_of(self, receiver: str) -> int:
        """The number of the receiver's shard, which any node may own."""
        return shard_of_receiver(receiver, self.shards)

    def host_of(self, receiver: str) -> Host | None:
        """The host of the receiver's shard, if this node owns it."""
        owned_shard = self.owned.get(self.shard_of(receiver))
        return None if owned_shard is None or owned_shard.ended.is_set() else owned_shard.host

    def flush_soon(self, receiver: str) -> None:
        """Make the receiver's shard append something soon, an empty flush if there is nothing else."""
        owned_shard = self.owned.get(self.shard_of(receiver))
        if owned_shard is not None and not owned_shard.ended.is_set():
            owned_shard.journal.flush_soon()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- what should be owned

    async def _reconcile(self) -> None:
        while not self._stopping:
            self._reconcile_now.clear()
            if not self._under_way and (self._was_ready or self.refused):
                self._log_moves()
            try:
                self._adjust_shards()
            except Exception:  # The next round may succeed, and without rounds nothing would be claimed.
                log.exception("node.broken")
            with suppress(TimeoutError):
                async with asyncio.timeout(RECONCILE_EVERY_S):
                    await self._reconcile_now.wait()

    def _adjust_shards(self) -> None:
        """Start the claims and handovers that are needed for the shards that it should own."""
        wanted = set(self.context.members.wanted_shards(self.shards))
        lease_valid = self.context.members.lease.is_valid()
        for shard in self.refused.keys() - wanted:
            del self.refused[shard]
        for shard, owned_shard in list(self.owned.items()):
            if owned_shard.ended.is_set():
                self.begin(self._drop, shard, owned_shard)
            elif owned_shard.is_suspended:
                if lease_valid and not self._was_refused_lately(shard):
                    self.begin(self._resume, shard, owned_shard)
            elif shard not in wanted:
                self.begin(self._hand_over, shard, owned_shard)
        if lease_valid:
            self._begin_claims()
            for shard in sorted(self._maybe_held - wanted - self.owned.keys()):
                self.begin(self.give_up_shard, shard)

    def _begin_claims(self, without: Set[int] = frozenset()) -> None:
        """Claim the shards that this node should own."""
        wanted = set(self.context.members.wanted_shards(self.shards))
        for shard in sorted(wanted - self.owned.keys() - without):
            if not self._was_refused_lately(shard):
                self.begin(self.claim, shard)

    def _log_moves(self) -> None:
        """Log one line for all shards that moved together, and none after a mere outage of NATS.

        Nothing is logged halfway, before the node is ready for the first time, unless shards are refused.
        """
        if self._moves:
            outlived = self._moves.keys() == {"resumed"} and self.context.js.is_disturbed
            counts = {"owned": len(self.owned), **self._moves}
            log.log(logging.DEBUG if outlived else logging.INFO, "node.shards", extra=counts)
            self._moves.clear()

    def _was_refused_lately(self, shard: int) -> bool:
        """True if the shard was refused a short time ago."""
        return asyncio.get_running_loop().time() < self._retry_refused_at.get(shard, 0.0)

    def begin(self, work: Callable[[int, *Ts], Coroutine[Any, Any, None]], shard: int, *more: *Ts) -> None:
        """Start one task for a shard, unless another one is under way."""
        if shard not in self._under_way:
            task = self._under_way[shard] = self._spawn(work(shard, *more))
            task.add_done_callback(lambda _: self._under_way.pop(shard))

    async def claim(self, shard: int) -> None:
        """Claim the shard, recover it and start it, unless another node owns it."""
        async with self._claiming:
            if not self._stopping:
                self._maybe_held.add(shard)
                taken = await self._tried(shard, take_over(shard, self.context))
                if self.is_stopping and isinstance(taken, Shard):
                    # It would begin to deliver while the other shards are handed over.
                    await taken.stop("this node stops")
                    await release(self.context.js, self.context.names, taken.claim, self.context.node)
                    return
                await self._start(shard, taken)
                if self._was_refused_lately(shard):
                    await self.give_up_shard(shard)

    async def _resume(self, shard: int, owned_shard: Shard) -> None:
        """Claim a suspended shard again and continue from memory; if that fails, drop it.

        A claim that resumes counts as clean, since this memory knows everything that was posted; without the
        memory it must not be used. A dropped shard is claimed like any other.
        """
        context = self.context
        await owned_shard.suspend()
        async with self._resuming:
            lease = context.members.lease
            if not lease.is_valid():
                return  # The heartbeat that a claim would name is one of the lease before.
            claimed = await self._tried(shard, claim(
                context.js, context.names, shard, context.node, context.time,
                may_claim=context.members.may_claim, run=context.members.run,
                heartbeat=context.members.stored, resumes=owned_shard.claim.epoch,
            ))  # fmt: skip
            if claimed is None:
                if self._was_refused_lately(shard):
                    # The memory is kept in case the right stream returns; a repair may have the shard.
                    await self.give_up_shard(shard)
                return
            if isinstance(claimed, Claim) and await self._tried(shard, owned_shard.resume(lease, claimed)):
                context.totals.ownership.resumed += 1
                self._moves["resumed"] += 1
                log.debug("shard.resumed", extra={"shard": shard, "epoch": claimed.epoch})
            else:
                await self._drop(shard, owned_shard)

    async def _tried(self, shard: int, work: Coroutine[Any, Any, T | NotOwned]) -> T | NotOwned | None:
        """The result of work on a shard; None if it has to be tried again.

        An unusable stream refuses the shard.
        """
        try:
            return await work
        except (Unavailable, ApiError) as error:
            # A hang of NATS fails the claims of all shards for one reason.
            reason_log = GatheredReasonLog(self.context.js, log, "shard.claim_failed", shard=shard)
            reason_log.log_once(str(error))
        except Unusable as error:
            self._refuse(shard, str(error))
        return None

    def _refuse(self, shard: int, why: str) -> None:
        self._retry_refused_at[shard] = asyncio.get_running_loop().time() + RETRY_REFUSED_AFTER_S
        if self.refused.get(shard) != why:
            self.refused[shard] = why
            log.error("shard.refused", extra={"shard": shard, "why": why})

    async def _start(self, shard: int, taken: Shard | NotOwned | None) -> None:
        if isinstance(taken, NotOwned):
            log.debug("shard.not_claimed", extra={"shard": shard, "why": taken.why})
        elif taken is not None:
            self.refused.pop(shard, None)
            self._retry_refused_at.pop(shard, None)
            self.owned[shard] = taken
            self._count_claim(taken.claim)
            self._moves["claimed"] += 1
            log.debug("shard.claimed", extra={"shard": shard, "epoch": taken.claim.epoch})
            await taken.start()
            if taken.claim.clean:
                self.context.members.renew_soon()  # The node that released it may hand over the next one.
            self._readiness_changed.set()
            self._spawn(self._watch(taken))

    def _count_claim(self, claimed: Claim) -> None:
        """A claim is clean if the last owner released the shard, or there was none."""
        ownership = self.context.totals.ownership
        if claimed.clean:
            ownership.clean += 1
        else:
            ownership.unclean += 1

    async def _watch(self, owned_shard: Shard) -> None:
        await owned_shard.ended.wait()
        self._reconcile_now.set()

    async def _drop(self, shard: int, owned_shard: Shard) -> None:
        await owned_shard.stop("claimed by another node")
        self.owned.pop(shard, None)
        if owned_shard.refused:
            self._refuse(shard, owned_shard.why)
            if owned_shard.loss is not None:
                await self._tried(shard, self._record_refusal(shard, owned_shard, owned_shard.loss))
            await self.give_up_shard(shard)
        else:
            # After a suspension that may be every shard of the node: one line, with their number.
            gathered_log = self.context.js.gathered_log
            gathered_log(log, logging.WARNING, "shard.ended", owned_shard.why, shard=shard)

    async def _record_refusal(self, shard: int, owned_shard: Shard, loss: Loss) -> None:
        """Record that the shard is refused for all nodes, even if the stream changes later."""
        context = self.context
        refusal = RecordedLoss(node=context.node, at=context.time.wall(), stream=loss.stream)
        await refuse(context.js, context.names, shard, owned_shard.claim.epoch, loss, refusal)

    async def _hand_over(self, shard: int, owned_shard: Shard) -> None:
        """Hand the shard over when its turn comes, which ends when the next owner runs it."""
        asked_at = asyncio.get_running_loop().time()
        async with self._turns.turn() as turn_s:
            if not self._may_hand_over(shard, owned_shard):
                return
            waited_s = asyncio.get_running_loop().time() - asked_at
            releasing = self._spawn(
                self._drain_and_release(shard, owned_shard, self.context.drain_s - waited_s)
            )
            if not self._wants(shard):
                with suppress(TimeoutError):
                    async with asyncio.timeout(turn_s):
                        await asyncio.wait({releasing})
                        await self._until_taken(shard)
        await releasing

    def _may_hand_over(self, shard: int, owned_shard: Shard) -> bool:
        """False if it is no longer to be handed over, or ended in another way, since this was asked for.

        A shard that ended or is suspended is dropped or resumed with the next round, unless the node stops.
        """
        over = owned_shard.is_suspended or owned_shard.ended.is_set()
        return self._stopping or not (over or self._wants(shard))

    def _wants(self, shard: int) -> bool:
        """True if this node should own the shard: no other node would claim it."""
        return shard in self.context.members.wanted_shards(self.shards)

    async def _until_taken(self, shard: int) -> None:
        """Return when another node runs the released shard, or this one should own it again."""
        while not self._wants(shard) and shard not in self.context.members.owned_elsewhere():
            self._heard.clear()
            await self._heard.wait()

    def _delivering_shards(self) -> list[int]:
        return [shard for shard, owned_shard in self.owned.items() if owned_shard.delivers]

    def _on_other_heartbeat(self) -> None:
        """Claim what is free, by a heartbeat of another node: it may have released a shard, or taken one.

        Each round tries the others, too, since that heartbeat may be out of date.
        """
        self._heard.set()
        if not self.is_ready and self.context.members.lease.is_valid():
            self._begin_claims(self.context.members.owned_elsewhere())

    async def _drain_and_release(self, shard: int, owned_shard: Shard, drain_s: float) -> None:
        handed_over = await owned_shard.hand_over(drain_s)
        if self.owned.pop(shard, None) is None:
            return  # Another waiter has recorded it.
        if handed_over:
            self._moves["handed_over"] += 1
            self.context.members.renew_soon()
            log.debug("shard.handed_over", extra={"shard": shard})
        else:
            log.warning("shard.ended", extra={"shard": shard, "why": owned_shard.why})

    async def give_up_shard(self, shard: int) -> None:
        """Release a shard after our claim or ownership ended in any way, so that other nodes can claim it."""
        context = self.context
        done = await self._tried(
            shard,
            give_up_claim(
                context.js, context.names, shard, context.node, may_claim=context.members.may_claim
            ),
        )
        if done is not None:
            self._maybe_held.discard(shard)

    def _wake(self, receiver: str) -> None:
        """Let the receiver go on, if its actor is in memory here."""
        host = self.host_of(receiver)
        actor = None if host is None else host.actors.get(receiver)
        if actor is not None:
            actor.wake()

    def _outage_changed(self) -> None:
        """Tell the others that this node can connect to no host, or can again; its actors wait meanwhile."""
        self.context.members.renew_soon()
        for owned_shard in self.owned.values():
            if not owned_shard.ended.is_set():
                owned_shard.host.outage_changed()

    # ---- configurations

    def _configuration_changed(self, receiver: str) -> None:
        host = self.host_of(receiver)
        if host is not None:
            policy: Policy | None = self.context.configurations.policy(receiver)
            host.configuration_changed(receiver, policy)
