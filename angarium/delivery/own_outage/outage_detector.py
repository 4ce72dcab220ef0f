"""The detector: waits with doubtful failures until there is a verdict, and ends an outage by probes.

A failure without contact to the receiver may be due to this node. So it is doubtful until any host is reached
after it. Meanwhile its attempt counts as under way, and hosts that were reached before are probed: one, then
four, then fifteen. The first that can be connected to clears this node: the failures are those of their
receivers. If none can, and the evidence is enough, the outage begins, and the failures are this node's. So no
failure is counted before the verdict.

During the outage a probe is made every second, of hosts with waiting events first. One that connects ends it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import assert_never

from actors.configuration.policy import Policy
from actors.ids import tenant_of
from actors.machine.outcome import OUTAGE, Answered, Failed, NotSent, Outcome
from angarium.delivery.http_exchange.target import InvalidTarget, Target, parse_target
from angarium.delivery.own_outage.evidence import Evidence, is_this_machine

FIRST_PROBE_AFTER_S = 0.5
"""Time that a doubtful failure waits for any host to be reached before one is probed."""
PROBES_PER_ROUND = (1, 4, 15)
"""Hosts that are probed at once, round by round, while none of them can be connected to."""
ROUNDS_PAUSE_S = 5.0
"""Time from the end of these rounds to the next ones: dead receivers alone must not disturb other hosts."""
PROBES_EVERY_S = 1.0
PROBES_AT_ONCE = 4
WAITING_PROBES_AT_ONCE = 64
"""Hosts of tenants with waiting events that are probed at a time: the dead ones of many tenants hide none."""
WAITING_TENANTS_MAX = 1024
NETWORKS_KNOWN_FOR_S = 1.0
"""Time for which it is believed that this node sends to few networks, or to many."""
DOUBTFUL = frozenset({"resolve", "connect", "timeout", "reset"})
"""Failures that an outage of this node can cause."""
CONTACT = frozenset({"tls", "protocol", "headers_too_large"})
"""Failures by which a host shows that it was reached."""
log = logging.getLogger(__name__)

Probe = Callable[[str, Target], Awaitable[bool | None]]
"""Connects to a target for a tenant, and returns whether that succeeded; None if that is not certain."""


class OutageDetector:
    """The detector of one node; belongs to the event loop that runs when it is made.

    - `probe`: makes a probe.
    - `address_of`: the address by which a target is known now; empty if there is none.
    - `has_own_path`: true for a receiver that is reached by another path (a proxy), which proves nothing.
    - `since`: when the outage was noticed, in the time of the loop; None without one.
    - `awaits_contact`: an answer matters now: it clears this node, or ends the outage.
    - `outage_count`: how many outages there were; `probed`: how many probes were made.
    """

    def __init__(
        self,
        probe: Probe,
        *,
        address_of: Callable[[Target], str] = lambda target: "",
        has_own_path: Callable[[Policy], bool] = lambda policy: False,
    ) -> None:
        self.since: float | None = None
        self.awaits_contact = False
        self.outage_count = self.probed = 0
        self._loop = asyncio.get_running_loop()
        self.probe = probe
        self._address_of = address_of
        self._has_own_path = has_own_path
        self._evidence = Evidence()
        self._held: list[asyncio.Future[bool]] = []
        self._finding_cause: asyncio.Task[None] | None = None
        self._next_round_at = self._loop.time()
        self._probing: asyncio.Task[None] | None = None
        self._probe_now = asyncio.Event()
        self._waiting: dict[str, Target] = {}
        self._probed_tenants: set[str] = set()
        self._turn = 0
        self._enough_networks, self._networks_known_to = False, (-1.0, 0)
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when an outage begins, and when it is over."""
        self._listeners.append(listener)

    def close(self) -> None:
        """End all tasks; failures that are held are those of their receivers."""
        for task in (self._finding_cause, self._probing):
            if task is not None:
                task.cancel()
        self._resolve(is_outage=False)

    # ---- what attempts tell

    def connected(self, receiver: str, target: Target, address: str) -> None:
        """A connection to this address was opened, without a proxy."""
        if not is_this_machine(target.host, address):
            self._evidence.reached(tenant_of(receiver), target, address, self._loop.time())
            self._host_reached()

    def answered(self, receiver: str, policy: Policy) -> None:
        """The receiver has answered."""
        target = self._target(policy)
        if target is not None:
            self.connected(receiver, target, self._address_of(target))

    async def attributed_outcome(self, receiver: str, policy: Policy, outcome: Outcome) -> Outcome:
        """The outcome as it counts."""
        match outcome:
            case Answered():
                if self.awaits_contact:
                    self.answered(receiver, policy)
                return outcome
            case Failed():
                return await self.attribute(receiver, policy, outcome)
            case NotSent():
                return outcome
            case _:
                assert_never(outcome)

    async def attribute(self, receiver: str, policy: Policy, failed: Failed) -> Failed:
        """The failure as it counts: that of the receiver, or of this node, once that is known."""
        if failed.error in CONTACT and self.awaits_contact:
            self.answered(receiver, policy)
        target = self._target(policy) if failed.error in DOUBTFUL else None
        if target is None:
            return failed
        now = self._loop.time()
        if failed.unreached:
            self._evidence.unreached(tenant_of(receiver), target, self._address_of(target), now)
        if self.since is None and not self._has_enough_networks(now):
            return failed
        if self.since is None:
            verdict: asyncio.Future[bool] = self._loop.create_future()
            self._held.append(verdict)
            self.awaits_contact = True
            self._find_cause_soon()
            if not await verdict:
                return failed
        return Failed(
            error=OUTAGE, detail=f"this node reached no host; {failed.error}: {failed.detail}",
            latency_ms=failed.latency_ms,
        )  # fmt: skip

    def may_try(self, receiver: str, policy: Policy) -> bool:
        """False during an outage. The host is probed soon if it is the first of its tenant that waits."""
        target = None if self.since is None else self._target(policy)
        if target is None:
            return True
        tenant = tenant_of(receiver)
        if tenant not in self._waiting and len(self._waiting) < WAITING_TENANTS_MAX:
            self._waiting[tenant] = target
            if tenant not in self._probed_tenants:
                self._probe_now.set()
        return False

    def holds(self, policy: Policy) -> bool:
        """True during an outage, for a receiver that is reached by this node's network; probes nothing."""
        return self.since is not None and self._target(policy) is not None

    def _target(self, policy: Policy) -> Target | None:
        """The target whose connections are evidence; None for one that is reached without our network."""
        try:
            target = parse_target(policy.url)
        except InvalidTarget:
            return None
        is_here = is_this_machine(target.host, self._address_of(target))
        return None if is_here or self._has_own_path(policy) else target

    def _has_enough_networks(self, now: float) -> bool:
        until, added = self._networks_known_to
        if now >= until or (added != self._evidence.hosts_added and not self._enough_networks):
            self._enough_networks = self._evidence.has_enough_networks(now)
            self._networks_known_to = now + NETWORKS_KNOWN_FOR_S, self._evidence.hosts_added
        return self._enough_networks

    # ---- the verdict

    def _find_cause_soon(self) -> None:
        if self._finding_cause is None or self._finding_cause.done():
            self._finding_cause = self._loop.create_task(self._find_cause())

    async def _find_cause(self) -> None:
        """Probe hosts that were reached before, and decide about the failures held, until none is."""
        try:
            while self._held:
                await asyncio.sleep(max(FIRST_PROBE_AFTER_S, self._next_round_at - self._loop.time()))
                cleared = await self._is_cleared()
                self._next_round_at = self._loop.time() + ROUNDS_PAUSE_S
                if cleared:
                    continue  # What is held by now has failed since.
                if self._evidence.shows_outage(self._loop.time()):
                    self.begin()
                else:
                    self._resolve(is_outage=False)
        finally:
            self._resolve(is_outage=False)

    async def _is_cleared(self) -> bool:
        for count in PROBES_PER_ROUND:
            if not self._held:
                return True
            witnesses = self._evidence.witnesses(self._loop.time())[:count]
            if await self._reach_any((each.tenant, each.target) for each in witnesses):
                return True
        return False

    async def _reach_any(self, hosts: Iterable[tuple[str, Target]]) -> bool:
        """Probe these hosts; True if one of them was reached, which is noted at once."""

        async def reach(tenant: str, target: Target) -> bool:
            self.probed += 1
            try:
                reached = await self.probe(tenant, target)
            except Exception:  # The others are probed all the same, and the next round comes.
                log.exception("outage.probe_broken")
                reached = None
            now, address = self._loop.time(), self._address_of(target)
            if reached is None or is_this_machine(target.host, address):
                return False
            if reached:
                self._evidence.reached(tenant, target, address, now)
                self._host_reached()
            else:
                self._evidence.unreached(tenant, target, address, now)
            return reached

        return any(await asyncio.gather(*(reach(tenant, target) for tenant, target in hosts)))

    def _resolve(self, *, is_outage: bool) -> None:
        held, self._held = self._held, []
        self.awaits_contact = self.since is not None
        for each in held:
            if not each.done():
                each.set_result(is_outage)

    def _host_reached(self) -> None:
        """Clear this node: something beyond this machine was reached."""
        if self._held:
            self._resolve(is_outage=False)
        if self.since is not None:
            self._end()

    # ---- an outage

    def begin(self) -> None:
        """Begin the outage; all that is held is ours."""
        self.since = self._loop.time()
        self.outage_count += 1
        self._waiting.clear()
        self._probed_tenants.clear()
        log.warning("outage.begun", extra={
            "why": "no host can be connected to", "remedy": "check this node's network, its firewall and DNS"
        })  # fmt: skip
        self._probing = self._loop.create_task(self._probe_until_over())
        self._resolve(is_outage=True)
        self._notify()

    def _end(self) -> None:
        since, self.since = self.since, None
        self.awaits_contact = bool(self._held)
        if self._probing is not None:
            self._probing.cancel()
        log.info("outage.over", extra={"seconds": round(self._loop.time() - (since or 0.0), 1)})
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    async def _probe_until_over(self) -> None:
        while self.since is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBES_EVERY_S):
                    await self._probe_now.wait()
            self._probe_now.clear()
            await self._reach_any(self._next_probes())

    def _next_probes(self) -> list[tuple[str, Target]]:
        """The next hosts: of tenants with waiting events, then those reached before, in turn."""
        chosen = list(self._waiting.items())[:WAITING_PROBES_AT_ONCE]
        for tenant, _ in chosen:
            del self._waiting[tenant]
            self._probed_tenants.add(tenant)
        known = self._evidence.in_turn(self._loop.time())
        for _ in range(max(0, min(len(known), PROBES_AT_ONCE - len(chosen)))):
            host = known[self._turn % len(known)]
            chosen.append((host.tenant, host.target))
            self._turn += 1
        return chosen
