"""Transforms that change between the attempts of an event, while nodes die."""

from typing import Any

from tests.sim.stage import R, Stage, staged
from tests.sim.world.process import Process
from tests.sim.world.receivers import Manner

KEY = "psk_" + "b2xk" * 8
OTHER_KEY = "psk_" + "bmV3" * 8
BODY = b'{"user": {"id": 7, "email": "a@example.com"}, "total": 1.0}'
DROP: dict[str, Any] = {"drop": ["/user/email"]}
PSEUDONYMS: dict[str, Any] = {"pseudonymize": ["/user/id"]}


def _put(stage: Stage, transform: dict[str, Any] | None, **members: Any) -> None:
    """Put the receiver, and let its owner adopt that."""
    stage.put(transform=transform, **members)
    stage.wait(0.5)


def _fail_once(stage: Stage, transform: dict[str, Any] | None, **members: Any) -> Process:
    """An event with a recorded attempt under this transform; its receiver fails from now on."""
    members = {"retry": {"base_s": 3.0, "cap_s": 3.0}} | members
    stage.put(transform=transform, **members)
    stage.node()
    owner = stage.owner()
    stage.receiver_is(Manner.ERRS)
    stage.publish("one", body=BODY)
    stage.until(lambda: _failures(stage) > 0)
    return owner


def _failures(stage: Stage) -> int:
    state = stage.checkers.journal_of(R).states.get(R)
    return 0 if state is None else state.counters.failed_attempts


def _retry(stage: Stage) -> None:
    """The receiver is well again, and gets the event."""
    stage.receivers_are_good()
    stage.ask("resume")
    stage.settle()
    stage.expect(len(stage.delivered()) == 1, "the event was not delivered")


def transform_is_replaced_between_attempts() -> None:
    """The retry has the body of the first attempt, although other places go now."""
    with staged() as stage:
        _fail_once(stage, DROP)
        _put(stage, {"drop": ["/total"]})
        _retry(stage)


def transform_comes_after_the_first_attempt() -> None:
    """The first attempt had the body as published, and so has the retry."""
    with staged() as stage:
        _fail_once(stage, None)
        _put(stage, DROP)
        _retry(stage)


def transform_goes_after_the_first_attempt() -> None:
    """Pseudonyms stay pseudonyms in the retry, since their key is still there."""
    with staged() as stage:
        _fail_once(stage, PSEUDONYMS, pseudonym_key=KEY)
        _put(stage, None, pseudonym_key=KEY)
        _retry(stage)
        stage.expect(not stage.checkers.transforms.reshaped, "the retry had another body")


def owner_dies_after_the_change() -> None:
    """The next owner knows the transform of the first attempt from the journal, or from the snapshot."""
    with staged() as stage:
        owner = _fail_once(stage, PSEUDONYMS, pseudonym_key=KEY)
        _put(stage, DROP, pseudonym_key=KEY)
        stage.wait(3.0)
        owner.kill()
        stage.node()
        stage.owner()
        _retry(stage)


def owner_dies_before_the_first_record() -> None:
    """An attempt that is not recorded binds no owner: the next one sends by the configuration in force."""
    with staged() as stage:
        stage.put(transform=DROP)
        first = stage.node()
        stage.lose_facts(b'"attempt_failed"', stage.owner())
        stage.receiver_is(Manner.ERRS)
        stage.publish("one", body=BODY)
        stage.until(lambda: stage.checkers.starts > 0)
        stage.wait(0.2)
        first.kill()
        stage.put(transform={"drop": ["/total"]})
        stage.node()
        stage.owner()
        _retry(stage)


def key_is_replaced_between_attempts() -> None:
    """The key of the first attempt is gone: the retry has other pseudonyms, and a fact says so."""
    with staged() as stage:
        _fail_once(stage, PSEUDONYMS, pseudonym_key=KEY)
        _put(stage, PSEUDONYMS, pseudonym_key=OTHER_KEY)
        _retry(stage)
        stage.expect(len(stage.checkers.transforms.reshaped) == 1, "no fact says that the body differs")


def key_goes_between_attempts() -> None:
    """The configuration of before the transform is put again: the event is given up, and never sent whole."""
    with staged() as stage:
        _fail_once(stage, PSEUDONYMS, pseudonym_key=KEY)
        stage.receivers_are_good()
        _put(stage, None)
        stage.settle()
        stage.expect(not stage.delivered(), "the event was delivered")
        reasons = stage.checkers.letters.reasons
        stage.expect(reasons == ["transform"], f"it was given up for {reasons}")


def key_is_replaced_and_the_transform_goes() -> None:
    """The retry lacks what the first attempt lacked, and has other pseudonyms."""
    with staged() as stage:
        _fail_once(stage, DROP | PSEUDONYMS, pseudonym_key=KEY)
        _put(stage, None, pseudonym_key=OTHER_KEY)
        _retry(stage)
        stage.expect(len(stage.checkers.transforms.reshaped) == 1, "no fact says that the body differs")


def relaxed_receiver_gets_many_transforms() -> None:
    """Several events fail under different transforms, and each keeps its own."""
    with staged() as stage:
        relaxed: dict[str, Any] = {"order": "relaxed", "retry": {"base_s": 60.0, "cap_s": 60.0}}
        owner = _fail_once(stage, DROP, **relaxed)
        for count, transform in enumerate((None, PSEUDONYMS, {"keep": ["/total"]}), 1):
            _put(stage, transform, pseudonym_key=KEY, **relaxed)
            stage.publish(f"more{count}", body=BODY)
            stage.until(lambda count=count: _failures(stage) > count)  # type: ignore[misc]
        owner.kill()
        stage.node()
        stage.owner()
        stage.receivers_are_good()
        stage.ask("resume")
        stage.settle()


def body_is_not_json() -> None:
    """An event that cannot be shaped is given up without an attempt, and holds nothing up."""
    with staged() as stage:
        stage.put(transform=DROP)
        stage.node()
        stage.owner()
        stage.publish("text", body=b"a@example.com")
        stage.publish("one", body=BODY)
        stage.settle()
        stage.expect(stage.checkers.starts == 1, f"{stage.checkers.starts} attempts were made")
        reasons = stage.checkers.letters.reasons
        stage.expect(reasons == ["transform"], f"it was given up for {reasons}")


ALL = (
    transform_is_replaced_between_attempts, transform_comes_after_the_first_attempt,
    transform_goes_after_the_first_attempt, owner_dies_after_the_change, owner_dies_before_the_first_record,
    key_is_replaced_between_attempts, key_goes_between_attempts, key_is_replaced_and_the_transform_goes,
    relaxed_receiver_gets_many_transforms, body_is_not_json,
)  # fmt: skip
