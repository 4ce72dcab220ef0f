"""Events for unknown receivers, and for some that turn out to be known."""

from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import Deal, R, Stage, staged
from tests.sim.world.receivers import Manner

UNKNOWN = "acme.r1"

BOTH = Plan(receivers=(R, UNKNOWN))


def _turned_away(stage: Stage) -> bool:
    return bool(stage.checkers.journal_of(UNKNOWN).numbering(UNKNOWN).refused)


def refusal_is_lost() -> None:
    """An owner turns an event away, and dies before this is recorded; its successor knows the receiver."""
    with staged(BOTH) as stage:
        first = stage.node()
        owner = stage.owner()
        stage.lose_facts(b'"turned_away"', owner)
        stage.publish("one", receiver=UNKNOWN)
        stage.wait(2.0)
        stage.put(UNKNOWN)
        first.kill()
        stage.node()
        stage.owner()
        stage.publish("two", receiver=UNKNOWN)
        stage.settle()
        stage.expect(stage.delivered(UNKNOWN) == {1, 2}, f"both are wanted, not {stage.delivered(UNKNOWN)}")


def burial_is_lost() -> None:
    """An owner records that it turns an event away, and dies before the burial; then the receiver is put."""
    with staged(BOTH) as stage:
        first = stage.node()
        stage.owner()

        def judge(message: Message, deal: Deal) -> None:
            if not (message.subject.startswith("angarium.dead.") and first.alive):
                deal()

        stage.gate(judge)
        stage.publish("one", receiver=UNKNOWN)
        stage.until(lambda: _turned_away(stage))
        stage.put(UNKNOWN)
        first.kill()
        stage.node()
        stage.owner()
        stage.publish("two", receiver=UNKNOWN)
        stage.settle()
        stage.expect(
            stage.delivered(UNKNOWN) == {2}, f"only the second is wanted, not {stage.delivered(UNKNOWN)}"
        )


def receiver_is_put_before_the_refusal_is_recorded() -> None:
    """The record is late; the receiver is put, paused, and gets its first event; then the owner dies."""
    with staged(BOTH) as stage:
        first = stage.node()
        stage.owner()
        late: list[Deal] = []

        def judge(message: Message, deal: Deal) -> None:
            journal = ".journal." in message.subject
            if journal and (late or b'"turned_away"' in message.data):
                late.append(deal)
            else:
                deal()

        stage.gate(judge)
        stage.publish("one", receiver=UNKNOWN)
        stage.until(lambda: bool(late))
        stage.put(UNKNOWN, paused=True)
        stage.publish("two", receiver=UNKNOWN)
        stage.wait(0.5)
        stage.gate(lambda _, deal: deal())
        late[0]()
        stage.until(lambda: _turned_away(stage))
        stage.wait(5.0)
        first.kill()
        stage.node()
        stage.owner()
        stage.put(UNKNOWN)
        stage.settle()
        stage.expect(
            stage.delivered(UNKNOWN) == {2}, f"only the second is wanted, not {stage.delivered(UNKNOWN)}"
        )


def an_event_waits_behind_a_slow_receiver() -> None:
    """A known receiver's event is held, and its owner dies: the event must be sent again."""
    with staged(BOTH) as stage:
        stage.put()
        first = stage.node()
        stage.owner()
        stage.receiver_is(Manner.HANGS)
        stage.publish("one")
        stage.publish("two", receiver=UNKNOWN)
        stage.wait(1.0)
        first.kill()
        stage.receivers_are_good()
        stage.node()
        stage.settle()
        stage.expect(stage.delivered(R) == {1}, f"it must be delivered, not only {stage.delivered(R)}")


def a_receiver_is_put_unnoticed() -> None:
    """A receiver is put just before its first event, and the node has not noticed it yet."""
    with staged(BOTH) as stage:
        stage.node()
        stage.owner()
        stage.let_replicas_stand(stage.run.names.receivers)
        stage.put(UNKNOWN)
        stage.publish("one", receiver=UNKNOWN)
        stage.wait(1.0)
        stage.let_replicas_go_on(stage.run.names.receivers)
        stage.settle()
        stage.expect(stage.delivered(UNKNOWN) == {1}, f"it must be delivered, not {stage.delivered(UNKNOWN)}")


def _silence(stage: Stage) -> None:
    """Make all leaders and replicas silent about the configurations."""
    stream = stage.run.names.receivers
    questions = f"$JS.API.STREAM.MSG.GET.{stream}", f"$JS.API.DIRECT.GET.{stream}"

    def judge(message: Message, deal: Deal) -> None:
        if not (message.subject in questions and message.reply.startswith("_INBOX.node-")):
            deal()

    stage.gate(judge)


def _floor(stage: Stage) -> int:
    return stage.checkers.journal_of(UNKNOWN).floor


def an_event_is_undecided() -> None:
    """An event waits for the leader of the configurations; known receivers and the floor pass it."""
    with staged(BOTH) as stage:
        stage.put()
        stage.node()
        stage.owner()
        _silence(stage)
        stage.publish("one", receiver=UNKNOWN)
        for each in ("two", "three", "four"):
            stage.publish(each)
            stage.wait(2.0)
        stage.expect(
            _floor(stage) == 4, f"the floor stands at {_floor(stage)}, before one that is not decided"
        )
        stage.expect(stage.delivered() == {2, 3, 4}, f"all are wanted, not only {stage.delivered()}")
        stage.gate(lambda _, deal: deal())
        stage.settle()
        stage.expect(_turned_away(stage), "the first is for nobody")


def two_owners_cannot_decide_an_event() -> None:
    """Neither an owner nor its successor can decide an event; then the receiver is put and gets another."""
    with staged(BOTH) as stage:
        nodes = [stage.node(), stage.node()]
        first = stage.owner()
        _silence(stage)
        stage.publish("one", receiver=UNKNOWN)
        stage.until(lambda: _floor(stage) == 1)
        stage.wait(10.0)
        first.kill()
        stage.until(lambda: stage.owner() in nodes and stage.owner() is not first)
        stage.wait(5.0)
        stage.put(UNKNOWN)
        stage.gate(lambda _, deal: deal())
        stage.wait(1.0)
        stage.publish("two", receiver=UNKNOWN)
        stage.settle()
        stage.expect(stage.delivered(UNKNOWN) == {1, 2}, f"both are wanted, not {stage.delivered(UNKNOWN)}")


def receiver_is_put_while_its_event_is_undecided() -> None:
    """The next owner knows the receiver from the start: the event left in the stream comes first."""
    with staged(BOTH) as stage:
        first = stage.node()
        stage.owner()
        _silence(stage)
        stage.publish("one", receiver=UNKNOWN)
        stage.until(lambda: _floor(stage) == 1)
        first.kill()
        stage.put(UNKNOWN)
        stage.publish("two", receiver=UNKNOWN)
        release = stage.hold_reads(stage.run.names.deliveries)
        stage.node()
        stage.owner()
        stage.wait(1.0)
        release()
        stage.settle()
        stage.expect(stage.delivered(UNKNOWN) == {1, 2}, f"both are wanted, not {stage.delivered(UNKNOWN)}")
