"""Jobs and erasures in precise interleavings: each is one that a rule was made for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from angarium.node.housekeeping import eraser
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.resending.judgement import content
from tests.sim.resending.resending_run import DUPLICATE_WINDOW_NS, KEEP_S, RECEIVERS, ResendingRun
from tests.sim.stage import Deal, Stage
from tests.sim.world.faults import CALM, Faults
from tests.sim.world.process import Process

R = "acme.r0"
WINDOW_S = DUPLICATE_WINDOW_NS / 1e9
LONG_AGO_S = 20.0


class ResendingStage(Stage):
    """A stage with events that are delivered or dead, one process of the API, and no other that comes."""

    run: ResendingRun

    def __init__(self, run: ResendingRun) -> None:
        super().__init__(run)
        run.apis_max = 0
        self.api = run.start_api()

    @property
    def copies(self) -> int:
        """The number of copies that jobs have sent."""
        return self.run.checkers.copies

    def at_copy(self, number: int, act: Callable[[Process], None]) -> None:
        """Do something to the API that sends copies, once a number of them has reached the server."""

        def judge(message: Message, deal: Deal) -> None:
            deal()
            if message.subject.startswith("angarium.deliver.") and self.copies == number and self.api.alive:
                act(self.api)

        self.gate(judge)

    def erase(self, event: str, tenant: str = "acme") -> None:
        """A client asks for an erasure."""
        self.run.client(self.run.erases(tenant, event))

    def publish_to_all(self, event: str) -> None:
        """Publish an event of `acme`, with a content of its own."""
        self._publish(self.run.names.publish_event("acme", "order"), {"Angarium-Id": event})

    def copy_late(self, event: str, source: int) -> None:
        """A copy arrives that a router made of the event at `source`."""
        headers = {"Angarium-Id": event, "Angarium-Source": str(source), "Angarium-Type": "order"}
        self._publish(self.run.names.publish_to(R), headers)

    def _publish(self, subject: str, headers: dict[str, str]) -> None:
        async def publish(js: JetStream) -> None:
            body = content("acme", headers["Angarium-Id"])
            assert isinstance(await js.publish(subject, body, headers), Stored)

        self.do(publish)

    def erased(self, event: str, tenant: str = "acme") -> bool:
        """True if its erasure is recorded as done."""
        return (tenant, event) in self.run.checkers.erased

    def stored(self, event: str, tenant: str = "acme") -> list[int]:
        """The deliveries that hold the event."""
        messages = self.run.server.streams[self.run.names.deliveries].store.messages.values()
        return [each.sequence for each in messages if content(tenant, event) in each.data]


@contextmanager
def _staged(events: int = 8, dead: int = 0) -> Iterator[ResendingStage]:
    run = ResendingRun(1, Plan(receivers=RECEIVERS, replay_keep_s=KEEP_S, snapshot_every_s=1.0))
    with run.staged():
        run.prepare(events, dead)
        yield ResendingStage(run)


def process_sleeps_during_a_replay() -> None:
    """A replaying process sleeps between two copies. Another takes over, and ids are forgotten."""
    with _staged() as stage:
        stage.at_copy(3, Process.freeze)
        stage.run.client(stage.run.replays(R, "key", 1.0))
        stage.until(lambda: stage.api.frozen)
        stage.run.start_api()
        stage.settle()
        stage.wait(WINDOW_S + LONG_AGO_S)
        stage.api.wake()
        stage.wait(LONG_AGO_S)
        stage.settle()


def process_sleeps_between_a_copy_and_its_answer() -> None:
    """A machine is suspended for longer than ids are known, after a copy and before the answer."""
    with _staged() as stage:
        network = stage.run.network

        def judge(message: Message, deal: Deal) -> None:
            if message.subject.startswith("angarium.deliver.") and stage.copies == 2 and not stage.api.frozen:
                stage.api.freeze(suspend=True)
                network.begin(Faults(cut_answer=1.0))
                stage.world.after(0.001, network.begin, CALM)
            deal()

        stage.gate(judge)
        stage.run.client(stage.run.replays(R, "key", 1.0))
        stage.until(lambda: stage.api.frozen)
        stage.wait(WINDOW_S + LONG_AGO_S)
        stage.api.wake()
        stage.settle()


def redrive_dies_between_two_steps() -> None:
    """A redrive dies when letters are sent and not deleted; the next comes when ids are forgotten."""
    with _staged(dead=3) as stage:

        def judge(message: Message, deal: Deal) -> None:
            if message.subject.endswith("MSG.DELETE.ANGARIUM_DEAD") and stage.api.alive:
                stage.api.kill()
            else:
                deal()

        stage.gate(judge)
        stage.run.client(stage.run.redrives("acme", "key"))
        stage.until(lambda: not stage.api.alive)
        stage.wait(WINDOW_S + LONG_AGO_S)
        stage.run.start_api()
        stage.settle()


def process_sleeps_through_an_erasure() -> None:
    """A replaying process has the event in memory, and wakes when the erasure is done."""
    with _staged() as stage:
        stage.at_copy(3, Process.freeze)
        stage.run.client(stage.run.replays(R, "key", 1.0))
        stage.until(lambda: stage.api.frozen)
        stage.erase("acme-r0-e6")
        stage.until(lambda: stage.erased("acme-r0-e6"))
        stage.api.wake()
        stage.settle()


def event_is_erased_shortly_after_its_source_was_seen() -> None:
    """The process that replays has just asked for the event, and pauses before it sends the copy."""
    with _staged() as stage:
        stage.at_copy(3, Process.freeze)
        stage.run.client(stage.run.replays(R, "key", 2.0))
        stage.until(lambda: stage.api.frozen)
        stage.erase("acme-r0-e3")
        stage.wait(3.5)
        stage.api.wake()
        stage.settle()


def event_is_erased_while_it_is_routed() -> None:
    """The router has the event in memory, and its copies do not arrive."""
    held: list[Deal] = []
    with _staged() as stage:

        def judge(message: Message, deal: Deal) -> None:
            if message.subject == "angarium.deliver.acme.r1" and "Angarium-Source" in (message.headers or {}):
                held.append(deal)
            else:
                deal()

        stage.gate(judge)
        stage.publish_to_all("last")
        stage.until(lambda: bool(held))
        stage.erase("last")
        stage.wait(LONG_AGO_S)
        stage.gate(lambda message, deal: deal())
        held[-1]()
        stage.settle()


def copy_of_a_router_arrives_late() -> None:
    """A copy arrives long after the erasure, from the connection of a router that was suspended."""
    with patch.object(eraser, "LATE_COPY_MAX_S", LONG_AGO_S), _staged() as stage:
        stage.publish_to_all("last")
        stage.settle()
        stage.erase("last")
        stage.until(lambda: stage.erased("last"))
        stage.run.checkers.late_copies_come = True
        stage.copy_late("last", source=3)
        stage.expect(bool(stage.stored("last")), "the copy was not stored")
        stage.until(lambda: not stage.stored("last"))
        stage.settle()


def event_is_erased_behind_a_lagging_replica() -> None:
    """No replica that answers has heard of the event, as often as it is asked."""
    with _staged() as stage:
        stage.let_replicas_stand(stage.run.names.deliveries)
        stage.let_replicas_stand(stage.run.names.events)
        stage.publish_to_all("last")
        stage.wait(2.0)
        stage.erase("last")
        stage.wait(LONG_AGO_S)
        for stream in (stage.run.names.deliveries, stage.run.names.events):
            stage.let_replicas_go_on(stream)
        stage.settle()


def event_is_erased_with_an_answer() -> None:
    """A receiver that rejects an event repeats its body, and that is recorded."""
    with _staged(dead=1) as stage:
        stage.run.client(stage.run.redrives("acme", "key"))
        stage.until(lambda: stage.copies > 0)
        stage.wait(0.3)
        stage.erase("poison-acme-r0-d0")
        stage.settle()


def receiver_is_put_again_during_a_replay() -> None:
    """The receiver is removed and put again while most of its events are still to be sent again."""
    with _staged(events=12) as stage:
        stage.run.client(stage.run.replays(R, "key", 0.5))
        stage.until(lambda: stage.copies == 2)
        stage.run.client(stage.run.removes(R, away_s=1.0))
        stage.settle()


def receiver_is_removed_while_its_replay_sleeps() -> None:
    """The process that replays wakes when the receiver is a new one; another one finds it removed."""
    with _staged() as stage:
        stage.at_copy(3, Process.freeze)
        stage.run.client(stage.run.replays(R, "key", 1.0))
        stage.until(lambda: stage.api.frozen)
        stage.run.client(stage.run.removes(R))
        stage.wait(LONG_AGO_S)
        stage.run.start_api()
        stage.settle()
        stage.put()
        stage.wait(LONG_AGO_S)
        stage.api.wake()
        stage.settle()


ALL = (
    process_sleeps_during_a_replay, process_sleeps_between_a_copy_and_its_answer,
    redrive_dies_between_two_steps, process_sleeps_through_an_erasure,
    event_is_erased_shortly_after_its_source_was_seen, event_is_erased_while_it_is_routed,
    copy_of_a_router_arrives_late, event_is_erased_behind_a_lagging_replica, event_is_erased_with_an_answer,
    receiver_is_put_again_during_a_replay, receiver_is_removed_while_its_replay_sleeps,
)  # fmt: skip
