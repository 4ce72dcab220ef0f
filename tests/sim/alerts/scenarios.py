"""Alerts while owners vanish: each pair is published once, in order."""

import msgspec

from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import Deal, R, Stage, old, staged
from tests.sim.world.process import Process
from tests.sim.world.receivers import Manner

OPS = "acme.r1"
TWO = Plan(receivers=(R, OPS))
SOON = {"failing_after_s": 3.0, "dead_letters_quiet_s": 20.0, "interval_s": 300.0}


def _told(stage: Stage, receiver: str = R) -> list[tuple[str, str]]:
    """The kind and the change of each event about the receiver."""
    events = stage.checkers.alerts.stored_events.get(receiver, [])
    bodies = [msgspec.json.decode(each.data) for each in events]
    return [(each["alert"], each["change"]) for each in bodies]


def _is_raised(stage: Stage) -> bool:
    return bool(stage.checkers.alerts.recorded.get(R))


def _is_alert(message: Message) -> bool:
    return ".alert." in message.subject and bool(message.headers)


def _node(stage: Stage) -> None:
    """A node whose clock is right: with others, limits and retries take minutes longer."""
    stage.node().skew_s = 0.0


def _failing(stage: Stage) -> Process:
    """A receiver that is about to fail for long enough, and one that gets alerts."""
    stage.put(alerts=SOON, retry={"base_s": 0.5, "cap_s": 1.0})
    stage.put(receiver=OPS, events=["angarium.alert.>"])
    _node(stage)
    owner = stage.owner()
    stage.receiver_is(Manner.ERRS)
    stage.publish("one")
    return owner


def _comes_back(stage: Stage) -> None:
    stage.receivers_are_good()
    stage.settle()
    stage.until(lambda: len(_told(stage)) == 2)
    stage.settle()
    told = [("failing", "raised"), ("failing", "recovered")]
    stage.expect(_told(stage) == told, f"told is {_told(stage)}")
    stage.expect(len(stage.delivered(OPS)) == 2, f"delivered to {OPS}: {stage.delivered(OPS)}")


def owners_vanish_while_a_receiver_fails() -> None:
    """Each owner dies some seconds after its claim."""
    with staged(TWO) as stage:
        _failing(stage)
        for _ in range(4):
            stage.wait(4.0)
            stage.owner().kill()
            _node(stage)
            stage.owner()
        stage.until(lambda: bool(_told(stage)))
        _comes_back(stage)


def event_about_an_alert_is_lost_with_its_owner() -> None:
    """The fact is recorded, its event gets lost, and the owner dies with what it knew."""
    with staged(TWO) as stage:
        owner = _failing(stage)

        def judge(message: Message, deal: Deal) -> None:
            if not (_is_alert(message) and owner.alive):
                deal()

        stage.gate(judge)
        stage.until(lambda: _is_raised(stage))
        stage.wait(1.0)
        owner.kill()
        _node(stage)
        stage.owner()
        stage.until(lambda: bool(_told(stage)))
        _comes_back(stage)


def event_about_an_alert_gets_lost_before_the_next_one() -> None:
    """The event of the first alert gets lost until both are recorded, and once more after that."""
    with staged(TWO) as stage:
        _failing(stage)
        lost = False

        def judge(message: Message, deal: Deal) -> None:
            nonlocal lost
            if _is_alert(message) and b'"number":1,' in message.data and not lost:
                lost = len(stage.checkers.alerts.recorded[R]) == 2
            else:
                deal()

        stage.gate(judge)
        stage.until(lambda: _is_raised(stage))
        stage.receivers_are_good()
        stage.until(lambda: lost)
        _comes_back(stage)


def fact_about_an_alert_is_lost_with_its_owner() -> None:
    """Flushes with alerts do not arrive, until the owner dies; the receiver is well again by then."""
    with staged(TWO) as stage:
        owner = _failing(stage)
        stage.lose_facts(b'"alert_raised"', owner)
        stage.wait(12.0)
        owner.kill()
        stage.receivers_are_good()
        _node(stage)
        stage.owner()
        stage.settle()
        stage.wait(12.0)
        stage.expect(not _told(stage), f"nothing was recorded, and told is {_told(stage)}")


def owner_dies_before_it_records_what_it_published() -> None:
    """The next owner publishes again, and the server knows the id."""
    with staged(TWO) as stage:
        owner = _failing(stage)
        stage.lose_facts(b'"alerts_published"', owner)
        stage.until(lambda: bool(_told(stage)))
        owner.kill()
        _node(stage)
        stage.owner()
        stage.wait(12.0)
        _comes_back(stage)


def quiet_receiver_owes_the_end_of_an_alert() -> None:
    """An event was given up; then nothing happens, the owner dies, and the alert is over after a while."""
    with staged(TWO) as stage:
        stage.put(alerts=SOON, retry={"base_s": 0.05, "cap_s": 0.1, "rejected_attempts": 1})
        _node(stage)
        owner = stage.owner()
        stage.receiver_is(Manner.REJECTS)
        stage.publish(*old(2))
        stage.until(lambda: len(_told(stage)) == 1)
        stage.wait(7.0)
        owner.kill()
        _node(stage)
        stage.owner()
        stage.until(lambda: len(_told(stage)) == 2)
        told = [("dead_letters", "raised"), ("dead_letters", "recovered")]
        stage.expect(_told(stage) == told, f"told is {_told(stage)}")
        stage.settle()


def no_node_lives_for_longer_than_a_receiver_may_fail() -> None:
    """The receiver fails once before that, and is well again when the next attempt is due."""
    with staged(TWO) as stage:
        stage.put(alerts=SOON | {"failing_after_s": 15.0}, retry={"base_s": 40.0, "cap_s": 40.0})
        _node(stage)
        owner = stage.owner()
        stage.receiver_is(Manner.ERRS)
        stage.publish("one")
        stage.wait(1.0)
        owner.kill()
        stage.receivers_are_good()
        stage.wait(20.0)
        _node(stage)
        stage.owner()
        stage.settle()
        stage.wait(12.0)
        stage.expect(not _told(stage), f"the receiver failed for a moment, and told is {_told(stage)}")


def receivers_of_alerts_are_down() -> None:
    """Two of them fail: each gets events about the other, none about itself, and few of them."""
    with staged(TWO) as stage:
        for receiver in (R, OPS):
            stage.put(receiver=receiver, events=["angarium.alert.>"], alerts=SOON)
        _node(stage)
        stage.owner()
        for receiver in (R, OPS):
            stage.receiver_is(Manner.ERRS, receiver)
            stage.publish("one", receiver=receiver)
        stage.wait(110.0)
        stage.receivers_are_good()
        stage.settle()
        stage.wait(12.0)
        stage.settle()
        told = len(_told(stage)), len(_told(stage, OPS))
        stage.expect(told == (2, 2), f"events about them: {told}")
        stage.expect(len(stage.delivered(R)) == 3, f"delivered: {stage.delivered(R)}")


ALL = (
    owners_vanish_while_a_receiver_fails, event_about_an_alert_is_lost_with_its_owner,
    event_about_an_alert_gets_lost_before_the_next_one,
    fact_about_an_alert_is_lost_with_its_owner, owner_dies_before_it_records_what_it_published,
    quiet_receiver_owes_the_end_of_an_alert, receivers_of_alerts_are_down,
    no_node_lives_for_longer_than_a_receiver_may_fail,
)  # fmt: skip
