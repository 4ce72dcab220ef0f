"""Events for unknown receivers, and for some that turn out to be known."""

from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import Deal, R, Stage, staged
from tests.sim.world.receivers import Manner

S = "acme.r1"
"""The unknown receiver."""

BOTH = Plan(receivers=(R, S))


def _turned_away(stage: Stage) -> bool:
    return bool(stage.checkers.ledger(S).numbering(S).refused)


def refusal_is_lost() -> None:
    """An owner turns an event away, and dies with the record of that; for the next one the name is known."""
    with staged(BOTH) as stage:
        first = stage.node()
        owner = stage.owner()
        stage.lose_facts(b'"turned_away"', owner)
        stage.publish("one", receiver=S)
        stage.wait(2.0)
        stage.put(S)
        first.kill()
        stage.node()
        stage.owner()
        stage.publish("two", receiver=S)
        stage.settle()
        stage.expect(stage.delivered(S) == {1, 2}, f"both are wanted, not {stage.delivered(S)}")


def burial_is_lost() -> None:
    """An owner turns an event away on record, and dies before it is buried; meanwhile the name is put."""
    with staged(BOTH) as stage:
        first = stage.node()
        stage.owner()

        def judge(message: Message, deal: Deal) -> None:
            if not (message.subject.startswith("angarium.dead.") and first.alive):
                deal()

        stage.gate(judge)
        stage.publish("one", receiver=S)
        stage.until(lambda: _turned_away(stage))
        stage.put(S)
        first.kill()
        stage.node()
        stage.owner()
        stage.publish("two", receiver=S)
        stage.settle()
        stage.expect(stage.delivered(S) == {2}, f"only the second is wanted, not {stage.delivered(S)}")


def put_before_the_refusal_is_on_record() -> None:
    """The record is late; the name is put, paused, and gets its first event; then the owner dies."""
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
        stage.publish("one", receiver=S)
        stage.until(lambda: bool(late))
        stage.put(S, paused=True)
        stage.publish("two", receiver=S)
        stage.wait(0.5)
        stage.gate(lambda _, deal: deal())
        late[0]()
        stage.until(lambda: _turned_away(stage))
        stage.wait(5.0)
        first.kill()
        stage.node()
        stage.owner()
        stage.put(S)
        stage.settle()
        stage.expect(stage.delivered(S) == {2}, f"only the second is wanted, not {stage.delivered(S)}")


def behind_one_that_is_slow() -> None:
    """A known receiver's event is held, and its owner dies: it must come again, whatever was turned away."""
    with staged(BOTH) as stage:
        stage.put()
        first = stage.node()
        stage.owner()
        stage.receiver_is(Manner.HANGS)
        stage.publish("one")
        stage.publish("two", receiver=S)
        stage.wait(1.0)
        first.kill()
        stage.receivers_are_good()
        stage.node()
        stage.settle()
        stage.expect(stage.delivered(R) == {1}, f"it must be delivered, not only {stage.delivered(R)}")


def put_unheard() -> None:
    """A name is put just before its first event, and the node has not heard of it."""
    with staged(BOTH) as stage:
        stage.node()
        stage.owner()
        stage.let_replicas_stand(stage.run.names.receivers)
        stage.put(S)
        stage.publish("one", receiver=S)
        stage.wait(1.0)
        stage.let_replicas_go_on(stage.run.names.receivers)
        stage.settle()
        stage.expect(stage.delivered(S) == {1}, f"it must be delivered, not {stage.delivered(S)}")


def _silence(stage: Stage) -> None:
    """From now on no leader and no replica tells a node what configurations there are."""
    stream = stage.run.names.receivers
    questions = f"$JS.API.STREAM.MSG.GET.{stream}", f"$JS.API.DIRECT.GET.{stream}"

    def judge(message: Message, deal: Deal) -> None:
        if not (message.subject in questions and message.reply.startswith("_INBOX.node-")):
            deal()

    stage.gate(judge)


def _floor(stage: Stage) -> int:
    return stage.checkers.ledger(S).floor


def undecided() -> None:
    """A name of which it cannot be said whether it is known: known ones go on, and the floor with them."""
    with staged(BOTH) as stage:
        stage.put()
        stage.node()
        stage.owner()
        _silence(stage)
        stage.publish("one", receiver=S)
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


def undecided_by_two_owners() -> None:
    """Neither an owner nor its successor can decide an event; then the name is put, and has another one."""
    with staged(BOTH) as stage:
        nodes = [stage.node(), stage.node()]
        first = stage.owner()
        _silence(stage)
        stage.publish("one", receiver=S)
        stage.until(lambda: _floor(stage) == 1)
        stage.wait(10.0)
        first.kill()
        stage.until(lambda: stage.owner() in nodes and stage.owner() is not first)
        stage.wait(5.0)
        stage.put(S)
        stage.gate(lambda _, deal: deal())
        stage.wait(1.0)
        stage.publish("two", receiver=S)
        stage.settle()
        stage.expect(stage.delivered(S) == {1, 2}, f"both are wanted, not {stage.delivered(S)}")


def put_while_undecided() -> None:
    """The next owner has heard of the name from the start: what was left to the stream comes first."""
    with staged(BOTH) as stage:
        first = stage.node()
        stage.owner()
        _silence(stage)
        stage.publish("one", receiver=S)
        stage.until(lambda: _floor(stage) == 1)
        first.kill()
        stage.put(S)
        stage.publish("two", receiver=S)
        release = stage.hold_reads(stage.run.names.deliveries)
        stage.node()
        stage.owner()
        stage.wait(1.0)
        release()
        stage.settle()
        stage.expect(stage.delivered(S) == {1, 2}, f"both are wanted, not {stage.delivered(S)}")
