"""Parked tenants: a flood of one waits in the stream, and nothing of it is lost if its router dies."""

from collections.abc import Callable
from typing import Any

from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import R, Stage, old, staged
from tests.sim.world.process import Process

OTHER = "umbra.r0"
FLOOD = 20


def flooded(**more: Any) -> Plan:
    """Two tenants of one partition, of which a router has a few events in memory."""
    return Plan(receivers=(R, OTHER), **{"tenant_events": 4} | more)


def owner_of_a_parked_tenant_dies() -> None:
    """No copy of a flood arrives, and others are served; its router dies, and all is routed."""
    with staged(flooded()) as stage:
        first = _blocked(stage)
        stage.announce(*old(FLOOD))
        stage.announce("other", tenant="umbra")
        stage.until(lambda: stage.checkers.starts == 1)
        stage.wait(1.5)
        _expect_recorded(stage, FLOOD + 1, {"acme": 1})
        first.kill()
        stage.node()
        stage.settle()
        _expect_recorded(stage, FLOOD + 1, {})


def parked_tenant_is_stopped_and_read_on() -> None:
    """A router hands over a flood, of which nothing is routed, and streams are purged as far as possible."""
    with staged(flooded(maintenance_every_s=0.3)) as stage:
        first = _blocked(stage)
        stage.announce(*old(FLOOD))
        stage.wait(3.0)
        stage.stop(first)
        stage.node()
        stage.settle()
        _expect_recorded(stage, FLOOD, {})


def journal_ages_out_behind_a_parked_tenant() -> None:
    """Only the checkpoint still knows that a tenant is parked."""
    with staged(flooded(snapshot_every_s=0.3)) as stage:
        first = _blocked(stage)
        stage.announce(*old(FLOOD))
        stage.wait(3.0)
        first.kill()
        journal = stage.run.server.streams[stage.run.names.journal]
        for sequence in list(journal.store.messages):
            journal.remove(sequence)
        stage.node()
        stage.settle()


def replica_lags_behind_a_parked_tenant() -> None:
    """A replica shows nothing of a flood, and a router reads it by its subject."""
    with staged(flooded(clustered=True)) as stage:
        _blocked(stage)
        stage.let_replicas_stand(stage.run.names.events)
        stage.announce(*old(FLOOD))
        stage.gate(lambda message, deal: deal())
        stage.wait(3.0)
        stage.let_replicas_go_on(stage.run.names.events)
        stage.settle()
        _expect_recorded(stage, FLOOD, {})


def one_event_waits_and_others_are_routed() -> None:
    """A copy of one event never arrives: what is routed goes on without it."""
    with staged(flooded()) as stage:
        first = _blocked(stage)
        stage.announce("one")
        stage.announce("other", tenant="umbra")
        stage.wait(6.0)
        _expect_recorded(stage, 2, {"acme": 1})
        first.kill()
        stage.node()
        stage.settle()


def event_is_held_behind_a_flood() -> None:
    """The rest of a flood is in memory, and one event more, when the tenant is parked no longer."""
    with staged(flooded(tenant_events=2, waiting_s=30.0)) as stage:
        _subscribed(stage)
        first = stage.node()
        stage.owner()
        stage.wait(2.0)
        lost = [b"1", b"2", b"3", b"4"]

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if not (message.subject == stage.run.names.publish_to(R) and message.data in lost):
                deal()

        stage.gate(judge)
        stage.announce("1", "2", "3")
        del lost[:2]
        stage.wait(5.0)
        _expect_recorded(stage, 3, {"acme": 3})
        stage.announce("4")
        stage.wait(2.0)
        _expect_recorded(stage, 3, {"acme": 3})
        del lost[0]
        stage.wait(5.0)
        _expect_recorded(stage, 3, {})
        first.kill()
        lost.clear()
        stage.node()
        stage.settle()


def _subscribed(stage: Stage) -> None:
    stage.put()
    stage.put(OTHER)


def _blocked(stage: Stage) -> Process:
    """A node that owns all, no copy of which for the flood's receiver arrives."""
    _subscribed(stage)
    first = stage.node()
    stage.owner()
    stage.wait(2.0)

    def judge(message: Message, deal: Callable[[], None]) -> None:
        if not (message.subject == stage.run.names.publish_to(R) and first.alive):
            deal()

    stage.gate(judge)
    return first


def _expect_recorded(stage: Stage, routed: int, parked: dict[str, int]) -> None:
    ledger = stage.checkers.ledgers[0]
    found = ledger.routed, dict(ledger.flushes[-1][1].parked_tenants)
    stage.expect(found == (routed, parked), f"{found} is recorded, not {(routed, parked)}")
