"""Parked tenants: a flood waits in the stream, and none of it is lost if its router dies."""

from collections.abc import Callable, Sequence
from typing import Any

from streams.nats.wire import Message
from tests.sim.checks.lost_tail import AfterLostTail
from tests.sim.plan import Plan
from tests.sim.stage import Deal, R, Stage, old, staged
from tests.sim.world.process import Process

OTHER = "umbra.r0"
FLOOD = 20
AHEAD = {"tenant_events": 2, "pull_batch": 1, "behind": 4}
AGAIN_S = 20.0
"""Longer than a router takes to notice that its consumer is gone, and to compare the stream."""


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


def reading_of_a_parked_tenant_stops_and_continues() -> None:
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
        for position in list(journal.store.messages):
            journal.remove(position)
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


def others_are_read_ahead_of_a_flood() -> None:
    """The consumer is far behind, and an event of another tenant is routed, once."""
    with staged(flooded(**AHEAD)) as stage:
        requests = _read_ahead(stage)
        stage.until(lambda: stage.checkers.starts == 1)
        stage.wait(1.0)
        _expect_recorded(stage, 4, {"acme": 1})
        requests.let_all_arrive()
        stage.wait(2.0)
        _expect_recorded(stage, FLOOD + 1, {"acme": 1})
        requests.owner.kill()
        stage.node()
        stage.settle()
        store = stage.run.server.streams[stage.run.names.deliveries].store
        copies = [each for each in store.messages.values() if each.data == b"other"]
        stage.expect(len(copies) == 1, f"there are {len(copies)} copies")


def an_event_read_ahead_is_not_routed() -> None:
    """Everything has arrived, also the event that was read ahead and whose copy is not stored."""
    with staged(flooded(**AHEAD, waiting_s=30.0)) as stage:
        requests = _read_ahead(stage, OTHER)
        requests.let_all_arrive()
        stage.wait(2.0)
        _expect_recorded(stage, FLOOD, {"acme": 1})
        requests.owner.kill()
        stage.node()
        stage.settle()


def an_event_read_ahead_keeps_routed_back_for_a_while() -> None:
    """An event that was read ahead arrives, and none after it that would have the router look."""
    with staged(flooded(**AHEAD, waiting_s=0.5)) as stage:
        requests = _read_ahead(stage, OTHER)
        stage.wait(1.0)
        requests.let_all_arrive()
        stage.wait(3.0)
        _expect_recorded(stage, FLOOD + 1, {"acme": 1, "umbra": FLOOD + 1})
        requests.owner.kill()
        stage.node()
        stage.settle()


def an_event_read_ahead_is_lost() -> None:
    """The server loses a tail of which nothing has arrived: one event of it was read ahead and delivered."""
    with staged(flooded(**AHEAD)) as stage:
        requests = _read_ahead(stage)
        stage.until(lambda: stage.checkers.starts == 1)
        after = AfterLostTail(stage)
        stage.run.network.restart_server(0.5)
        after.lose_tail(stage.run.names.events, FLOOD // 2)
        stage.wait(0.5)
        stage.announce(*[f"new{number}" for number in range(FLOOD)], tenant="umbra")
        requests.let_all_arrive()
        stage.wait(AGAIN_S)
        after.expect_refused(stage.run.names.events)


def a_new_tail_is_read_ahead() -> None:
    """The stream has lost a tail, and the consumer is gone with its server, which nothing has told yet."""
    with staged(flooded(**AHEAD)) as stage:
        requests = _read_ahead(stage)
        stage.until(lambda: stage.checkers.starts == 1)
        after = AfterLostTail(stage)
        events = stage.run.server.streams[stage.run.names.events]
        for consumer in list(events.consumers.values()):
            events.lose(consumer)
        after.lose_tail(stage.run.names.events, FLOOD // 2)
        stage.announce(*[f"new{number}" for number in range(FLOOD)], tenant="umbra")
        stage.wait(1.0)
        requests.let_all_arrive()
        stage.wait(AGAIN_S)
        after.expect_refused(stage.run.names.events)


class _Requests:
    """A gate before the requests of a router's consumer, each of which is for one event."""

    def __init__(self, stage: Stage, blocked: Sequence[str]) -> None:
        """No copy for the `blocked` receivers arrives as long as the first owner lives."""
        _subscribed(stage)
        self.stage = stage
        self.owner = stage.node()
        stage.owner()
        stage.wait(2.0)
        self._held: list[Deal] = []
        self._open = False
        copies = {stage.run.names.publish_to(receiver) for receiver in blocked}
        asks = f"CONSUMER.MSG.NEXT.{stage.run.names.events}."

        def judge(message: Message, deal: Deal) -> None:
            if asks in message.subject and not self._open:
                self._held.append(deal)
            elif not (message.subject in copies and self.owner.alive):
                deal()

        stage.gate(judge)

    def let_one_arrive(self) -> None:
        self.stage.until(lambda: bool(self._held))
        self._held.pop(0)()
        self.stage.wait(0.3)

    def let_all_arrive(self) -> None:
        self._open = True
        for deal in self._held:
            deal()


def _read_ahead(stage: Stage, *blocked: str) -> _Requests:
    """A flood, of which four events arrive, and one event of another tenant, which is read ahead."""
    requests = _Requests(stage, [R, *blocked])
    stage.announce(*old(FLOOD))
    stage.announce("other", tenant="umbra")
    for _ in range(3):
        requests.let_one_arrive()
    return requests


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
    journal = stage.checkers.journals[0]
    found = journal.routed, dict(journal.flushes[-1][1].parked_tenants)
    stage.expect(found == (routed, parked), f"{found} is recorded, not {(routed, parked)}")
