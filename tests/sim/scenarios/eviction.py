"""Tenants above their rate: they are evicted when the events are full, and cost others no memory."""

import asyncio
from collections.abc import Callable
from typing import Any

from streams.nats.answers import Refused
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.scenarios.flooding import OTHER
from tests.sim.stage import R, Stage, staged
from tests.sim.world.process import Process

QUICK = "quick.r0"
EVENTS = 40
FULL: dict[str, Any] = {"rate": 1.0, "events_room": 2 << 10, "maintenance_every_s": 0.3}
SHORT: dict[str, Any] = {
    "rate": 0.1, "limited": ("umbra",), "event_bytes": 1, "pull_batch": 2, "waiting_s": 1.0,
}  # fmt: skip
"""No event fits into the memory of a router, and two of three tenants have a rate."""


def events_of_the_largest_backlog_are_evicted() -> None:
    """A tenant above its rate has filled the events; its router dies while room is made for others."""
    with staged(Plan(receivers=(R, OTHER), **FULL)) as stage:
        first = _limited(stage)
        stage.do(lambda js: _publish(js, stage, "acme", EVENTS))
        stage.until(lambda: bool(stage.checkers.fanout.given_up))
        first.kill()
        stage.node()
        stage.do(lambda js: _publish(js, stage, "umbra", EVENTS))
        stage.settle()
        stage.expect(bool(stage.checkers.fanout.purges_by_subject), "nothing is purged by subject")


def owner_dies_before_the_letters_are_stored() -> None:
    """Events are evicted, and no letter arrives; none of them is recorded as routed when the router dies."""
    with staged(Plan(receivers=(R, OTHER), **FULL | {"events_room": 1 << 10, "rate": 0.5})) as stage:
        first = _limited(stage)
        letters, lost = stage.run.names.dead(R), list[str]()

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if message.subject == letters and first.alive:
                lost.append(message.subject)
            else:
                deal()

        stage.gate(judge)
        stage.announce(*[str(number) for number in range(10)])
        stage.until(lambda: bool(lost))
        stage.wait(3.0)
        first.kill()
        stage.node()
        stage.do(lambda js: _publish(js, stage, "acme", EVENTS))
        stage.settle()


def page_arrives_late_of_an_evicted_tenant() -> None:
    """A page of a tenant was requested to be routed; before it arrives, its events are to become letters."""
    with staged(Plan(receivers=(R, OTHER), rate=1.0, tenant_events=2)) as stage:
        first = _limited(stage)
        release = stage.hold_reads(stage.run.names.events)
        stage.announce(*[str(number) for number in range(8)])
        stage.wait(4.0)
        shard = stage.checkers.nodes[first.name].owned[0]
        first.post(lambda: shard.evict_unrouted("acme", 1 << 60))
        stage.wait(0.1)
        release()
        stage.settle()
        fanout = stage.checkers.fanout
        both = fanout.given_up[R] & {position for receiver, position in fanout.given if receiver == R}
        stage.expect(not both, f"{sorted(both)} are routed, and have letters")


def memory_is_short_and_tenants_wait_for_tokens() -> None:
    """Two tenants wait for tokens, and their next events take the memory that a third one needs."""
    _expect_quick(Plan(receivers=(R, OTHER, QUICK), **SHORT), [1, 1])


def more_tenants_wait_for_tokens_than_can_be_parked() -> None:
    """Two tenants wait for tokens, and one of them cannot be parked: a third one does not wait for it."""
    _expect_quick(Plan(receivers=(R, OTHER, QUICK), tenants_parked=1, **SHORT), [1, 3])


def _expect_quick(plan: Plan, limited: list[int]) -> None:
    """Expect that a tenant without a rate does not wait; of each of the others so many events are routed."""
    with staged(plan) as stage:
        stage.put(QUICK)
        _limited(stage)
        for number in range(3):
            for tenant in ("acme", "umbra"):
                stage.announce(f"{tenant}{number}", tenant=tenant)
        stage.wait(1.5)
        for number in range(5):
            stage.announce(f"quick{number}", tenant="quick")
        stage.wait(3.0)
        stage.expect(len(stage.delivered(QUICK)) == 5, "a tenant without a rate waits for others")
        found = sorted(len(stage.delivered(receiver)) for receiver in (R, OTHER))
        stage.expect(found == limited, f"of tenants above their rate {found} events are routed")
        stage.settle()


def _limited(stage: Stage) -> Process:
    """A node that owns all, and a receiver of each tenant."""
    stage.put()
    stage.put(OTHER)
    first = stage.node()
    stage.owner()
    stage.wait(2.0)
    return first


async def _publish(js: JetStream, stage: Stage, tenant: str, count: int) -> None:
    """Publishes like a patient producer that is refused."""
    for number in range(count):
        subject, body = stage.run.names.publish_event(tenant, "order"), f"{tenant}{number}".encode()
        while isinstance(await js.publish(subject, body), Refused):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
