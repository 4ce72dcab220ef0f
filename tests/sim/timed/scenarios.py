"""Timed events become due while owners die, and while what was sent long ago arrives: each is routed once."""

from collections.abc import Callable

from streams.installation.timed_subjects import MINUTE_S
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.protocol import rfc3339
from streams.nats.wire import Message
from streams.timed.due_publisher import SECOND_SWEEP_S
from streams.timed.entries import cancel, events_age_s
from streams.timed.listing import entries_of_event
from tests.sim.stage import R, Stage, staged
from tests.sim.world.process import EPOCH_S, Process

TYPE = "order"
DUE_IN_S = 5.0


def owner_dies_before_it_has_stored_the_entry() -> None:
    """The entry never arrives, and the owner dies: the next one has to store it."""
    with staged() as stage:
        stage.put()
        first, _ = _holding(stage, _is_entry)
        _announce(stage, "one")
        stage.wait(2.0)
        first.kill()
        _node(stage)
        _settle(stage)


def owner_dies_when_the_entry_is_stored() -> None:
    """The owner hears of no entry, and the next one, which stores it again, finds it."""
    with staged() as stage:
        stage.put()
        first = _node(stage)
        stage.owner()
        _announce(stage, "one")
        stage.wait(0.05)
        first.kill()
        _node(stage)
        _settle(stage)


def owner_dies_before_the_event_is_due() -> None:
    """Only the stream knows of the event when it becomes due: there is no owner then."""
    with staged() as stage:
        stage.put()
        first = _node(stage)
        stage.owner()
        _announce(stage, "one")
        stage.wait(2.0)
        first.kill()
        stage.wait(2 * DUE_IN_S)
        _node(stage)
        _settle(stage)


def owner_dies_after_it_stored_the_entry_late() -> None:
    """No node was there when the event was due, nor for two hours; the owner that stores it opens nothing."""
    with staged() as stage:
        stage.put()
        before = _node(stage)
        stage.owner()
        before.kill()
        _announce(stage, "one")
        stage.wait(7_200.0)
        first, held = _holding(stage, _is_due)
        stage.until(lambda: bool(held.deals))
        stage.wait(2.0)  # `routed` has passed the event.
        first.kill()
        _node(stage)
        _settle(stage)


def clock_is_set_back_from_an_empty_minute() -> None:
    """The due publisher has found the minute of the event empty, and meets it again minutes later."""
    with staged() as stage:
        stage.put()
        owner = _node(stage)
        owner.skew_s = 300.0
        stage.owner()
        stage.wait(SECOND_SWEEP_S + 5.0)
        stage.until(lambda: 8.0 < stage.world.now % MINUTE_S < 12.0)
        due_in_s = 300.0 + 30.0
        stage.wait(1.5)
        owner.skew_s = 0.0
        stage.wait(1.5)  # The due publisher has found out.
        _announce(stage, "one", due_in_s=due_in_s)
        stage.wait(due_in_s + 5.0)
        _expect_open(stage)
        _settle(stage)


def clock_is_set_right_after_it_was_set_back() -> None:
    """The due publisher waits for the next second by its clock, which jumps to where it was before."""
    with staged() as stage:
        stage.put()
        owner = _node(stage)
        stage.owner()
        stage.wait(2.0)
        owner.skew_s = -600.0
        stage.wait(3.0)
        _announce(stage, "one", due_in_s=90.0)
        stage.wait(2.0)
        owner.skew_s = 0.0
        stage.wait(95.0)
        _expect_open(stage)
        _settle(stage)


def leader_that_was_deposed_knows_no_entry() -> None:
    """The owner begins while a leader answers that lacks the entry; later it opens everything once more."""
    with staged() as stage:
        later = stage.run.names.later
        stage.put()
        first = _node(stage)
        stage.owner()
        stage.depose(later, 0.0)
        _announce(stage, "one")
        stage.wait(2.0)
        first.kill()
        stage.wait(2 * DUE_IN_S)
        stage.depose(later, 1.0)
        _node(stage)
        stage.owner()
        stage.wait(5.0)
        _expect_open(stage, is_open=False)
        stage.let_leaders_find_out()
        _settle(stage)


def _expect_open(stage: Stage, *, is_open: bool = True) -> None:
    """Expect that the event was published again, or that it was not."""
    (event,) = stage.checkers.fanout.timed.by_body.values()
    stage.expect(bool(event.due) == is_open, f"{event} is {'not ' * is_open}open")


def owner_dies_between_the_stub_and_the_copy() -> None:
    """The event is taken, and no copy arrives: the next owner knows by the stub that it counts."""
    with staged() as stage:
        stage.put()
        first = _holding(stage, lambda message: message.subject == stage.run.names.publish_to(R))[0]
        _announce(stage, "one")
        stage.wait(DUE_IN_S + 3.0)
        first.kill()
        _node(stage)
        _settle(stage)


def due_event_arrives_after_the_next_owners() -> None:
    """A due event of the first owner arrives after that of the second was routed."""
    with staged() as stage:
        stage.put()
        first, held = _holding(stage, _is_due)
        _announce(stage, "one")
        stage.wait(DUE_IN_S + 1.5)
        first.freeze()
        held.keeps = False
        _node(stage)
        _settle(stage)
        held.release()
        stage.wait(1.0)
        first.wake()
        _settle(stage)


def entry_arrives_after_the_event_was_routed() -> None:
    """An entry that the first owner sent arrives after the event was taken."""
    with staged() as stage:
        stage.put()
        first, held = _holding(stage, _is_entry)
        _announce(stage, "one")
        stage.wait(2.0)
        first.freeze()
        held.keeps = False
        second = _node(stage)
        _settle(stage)
        held.release()
        stage.wait(1.0)
        first.wake()
        second.kill()
        _node(stage)  # It opens everything that may be due once more.
        stage.wait(5.0)
        _settle(stage)


def event_comes_while_the_one_before_it_is_taken() -> None:
    """A copy of the later event would be first, and the owner would take that of the due one for a repeat."""
    with staged() as stage:
        stage.put()
        _, held = _holding(stage, lambda message: "Angarium-Taken" in (message.headers or {}))
        _announce(stage, "one")
        stage.wait(DUE_IN_S + 1.5)
        stage.announce("two")
        stage.wait(1.0)
        held.release()
        _settle(stage)


def event_is_cancelled_while_it_is_taken() -> None:
    """The stub of the owner arrives after the event was cancelled."""
    with staged() as stage:
        stage.put()
        _, held = _holding(stage, lambda message: "Angarium-Taken" in (message.headers or {}))
        _announce(stage, "one")
        stage.wait(DUE_IN_S + 1.5)

        async def cancel_it(js: JetStream) -> None:
            names = stage.run.names
            (entry,) = [each async for each in entries_of_event(js, names, "acme", "one")]
            await cancel(js, names, entry, "ada", await events_age_s(js, names))

        stage.do(cancel_it)
        held.release()
        stage.wait(5.0)
        _settle(stage)


def _node(stage: Stage) -> Process:
    """A node whose clock is right: others open seconds early or late."""
    process = stage.node()
    process.skew_s = 0.0
    return process


def _is_entry(message: Message) -> bool:
    return message.subject.startswith("angarium.later.")


def _is_due(message: Message) -> bool:
    return "Angarium-Due" in (message.headers or {})


def _announce(stage: Stage, *ids: str, due_in_s: float = DUE_IN_S) -> None:
    """Publish events that are due soon."""
    at = rfc3339(EPOCH_S + stage.world.now + due_in_s)

    async def announce(js: JetStream) -> None:
        for each in ids:
            headers = {"Angarium-Id": each, "Angarium-Deliver-At": at}
            subject = stage.run.names.publish_event("acme", TYPE)
            assert isinstance(await js.publish(subject, b"later " + each.encode(), headers), Stored)

    stage.do(announce)


class _Held:
    """Messages that have not arrived; `keeps` is false once others pass."""

    def __init__(self) -> None:
        self.keeps = True
        self.deals: list[Callable[[], None]] = []

    def release(self) -> None:
        """The messages arrive, and no others are kept."""
        self.keeps = False
        for deal in self.deals:
            deal()


def _holding(stage: Stage, is_held: Callable[[Message], bool]) -> tuple[Process, _Held]:
    """A node, and its messages of that kind, which do not arrive."""
    first, held = _node(stage), _Held()

    def judge(message: Message, deal: Callable[[], None]) -> None:
        if held.keeps and first.alive and is_held(message):
            held.deals.append(deal)
        else:
            deal()

    stage.gate(judge)
    stage.owner()
    stage.wait(2.0)
    return first, held


def _settle(stage: Stage) -> None:
    stage.until(lambda: not stage.checkers.fanout.unsettled())
    stage.wait(2.0)
    stage.settle()
