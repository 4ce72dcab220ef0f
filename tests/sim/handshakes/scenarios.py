"""Handshakes while secrets change, nodes die and answers get lost."""

from typing import Any

from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import URL, Deal, R, Stage, old, staged
from tests.sim.world.process import Process

OLD = "whsec_" + "b2xk" * 8
NEW = "whsec_" + "bmV3" * 8
OTHER_URL = URL + "/other"


def _put(stage: Stage, *secrets: str, **members: Any) -> None:
    stage.put(handshake="hmac", secrets=list(secrets), **members)


def _begin(stage: Stage, *secrets: str, **members: Any) -> Process:
    """A receiver with a handshake, and the owner of its shard, whose clock is right."""
    _put(stage, *(secrets or (OLD,)), **members)
    stage.node().skew_s = 0.0
    return stage.owner()


def _made(stage: Stage) -> int:
    """The handshakes that were made."""
    return len(stage.checkers.handshakes.made)


def receiver_does_not_prove_itself_at_first() -> None:
    """Events wait until their receiver has the secret; handshakes follow its backoff."""
    with staged() as stage:
        stage.run.receivers.secrets[R] = NEW
        _begin(stage)
        stage.publish(*old(5))
        stage.wait(20.0)
        stage.expect(_made(stage) > 3, f"{_made(stage)} handshakes were made")
        stage.expect(not stage.delivered(), "something was delivered")
        stage.run.receivers.secrets[R] = OLD
        stage.settle()


def secret_is_replaced() -> None:
    """The receiver, which is well, has to prove itself again, and has only the old secret for a while."""
    with staged() as stage:
        _begin(stage)
        stage.publish("one")
        stage.settle()
        stage.run.receivers.secrets[R] = OLD
        _put(stage, NEW)
        stage.wait(1.0)
        stage.publish(*old(3))
        stage.wait(5.0)
        stage.expect(len(stage.delivered()) == 1, "events were delivered before the new proof")
        stage.run.receivers.secrets[R] = NEW
        stage.settle()


def url_is_replaced() -> None:
    """A receiver has another URL; its proof at the old one says nothing about that."""
    with staged() as stage:
        _begin(stage)
        stage.publish("one")
        stage.settle()
        _put(stage, OLD, url=OTHER_URL)
        stage.wait(1.0)
        stage.publish("two")
        stage.settle()
        stage.expect(_made(stage) == 2, f"{_made(stage)} handshakes were made")


def secret_is_replaced_during_a_handshake() -> None:
    """The proof is about the old secret, and comes when the new one is in force."""
    with staged() as stage:
        stage.run.receivers.proof_after_s = 3.0
        stage.run.receivers.secrets[R] = OLD
        _begin(stage)
        stage.publish("one")
        stage.until(lambda: _made(stage) == 1)
        _put(stage, NEW)
        stage.wait(8.0)
        stage.expect(not stage.delivered(), "the proof of the old secret counted for the new one")
        stage.run.receivers.secrets[R] = NEW
        stage.settle()


def owner_dies_before_the_proof_is_recorded() -> None:
    """The next owner does not know of the answer, and makes another handshake."""
    with staged() as stage:
        owner = _begin(stage)
        stage.lose_facts(b'"handshake_succeeded"', owner)
        stage.publish(*old(3))
        stage.until(lambda: _made(stage) == 1)
        stage.wait(0.5)
        stage.expect(not stage.delivered(), "something was delivered before the proof was recorded")
        owner.kill()
        stage.node().skew_s = 0.0
        stage.owner()
        stage.settle()
        stage.expect(_made(stage) == 2, f"{_made(stage)} handshakes were made")


def owner_sleeps_through_its_handshake() -> None:
    """A node sleeps when its handshake is recorded; another one owns the shard when it wakes."""
    with staged(Plan(ttl_s=2.0)) as stage:
        owner = _begin(stage)
        held: list[Deal] = []

        def judge(message: Message, deal: Deal) -> None:
            if ".journal." in message.subject and b'"handshake_started"' in message.data and owner.alive:
                deal()
                if not held:
                    held.append(deal)
                    stage.world.after(0.0, owner.freeze)
            else:
                deal()

        stage.gate(judge)
        stage.publish(*old(3))
        stage.until(lambda: bool(held))
        stage.run.start_node().skew_s = 0.0
        stage.until(lambda: _made(stage) == 1)
        owner.wake()
        stage.wait(5.0)
        stage.settle()


def node_dies_after_a_handshake() -> None:
    """A handshake that is asked for takes a new receiver's only token, and the node dies."""
    with staged() as stage:
        _begin(stage, rate={"limit": 6, "per": "minute", "burst": 1})
        stage.ask("resume")
        stage.at_start(1, Process.kill)
        stage.world.after(2.0, stage.run.start_node)
        stage.ask("verify")
        stage.publish("one")
        stage.settle()


def receiver_allows_few_requests() -> None:
    """A receiver allows twelve a minute in its handshake, and its configuration far more."""
    with staged() as stage:
        stage.run.receivers.allowed_per_minute = 12
        stage.put(handshake="cloudevents", rate={"limit": 100, "per": "second", "burst": 100})
        stage.node().skew_s = 0.0
        stage.owner()
        stage.publish(*old(30))
        stage.wait(60.0)
        stage.expect(len(stage.delivered()) <= 12, f"{len(stage.delivered())} events in a minute")
        stage.expect(len(stage.delivered()) >= 10, f"only {len(stage.delivered())} events in a minute")
        stage.run.receivers.allowed_per_minute = None
        stage.ask("verify")
        stage.settle()


ALL = (
    receiver_does_not_prove_itself_at_first, secret_is_replaced, url_is_replaced,
    secret_is_replaced_during_a_handshake, owner_dies_before_the_proof_is_recorded,
    owner_sleeps_through_its_handshake, node_dies_after_a_handshake, receiver_allows_few_requests,
)  # fmt: skip
