"""Rules about handshakes, each taken out by itself."""

from typing import Any

from msgspec.structs import replace

from actors.configuration.policy import OldSecret, Policy
from actors.ids import stable_hash
from actors.machine import commands as c
from actors.machine import decide, evolve
from actors.machine import facts as f
from actors.machine.bucket import Bucket
from actors.machine.handshake import deciding, proof
from actors.machine.handshake.deciding import handshake_started
from actors.machine.handshake.folding import after_handshake
from actors.machine.outcome import Outcome
from actors.machine.scheduling import next_step
from actors.machine.state import State
from actors.ports import Attempt
from actors.runtime import live_state
from actors.runtime.eventless import handshaking
from tests.sim.handshakes import answers, scenarios
from tests.sim.mutants.mutant import Mutant

_ended = deciding.handshake_ended


def _verified_at_once(state: State, policy: Policy) -> bool:
    return True


def _key_without_secrets(
    kind: str, url: str, secrets: tuple[str, ...], old_secrets: tuple[OldSecret, ...]
) -> str:
    return stable_hash(f"{kind} {url}")


def _key_without_url(
    kind: str, url: str, secrets: tuple[str, ...], old_secrets: tuple[OldSecret, ...]
) -> str:
    return stable_hash(f"{kind} {secrets} {[each.secret for each in old_secrets]}")


def _any_success(outcome: Outcome, *args: Any) -> Outcome:
    return outcome


def _about_what_is_in_force(
    state: State, policy: Policy, command: c.RecordHandshake, *args: Any
) -> list[f.Fact]:
    key = proof.handshake_key(policy)
    begun = replace(state, handshake=replace(state.handshake, key=key) if state.handshake else None)
    return _ended(begun, policy, c.RecordHandshake(key, command.outcome, command.epoch), *args)


def _fold_any_key(state: State, fact: f.HandshakeFact) -> State:
    known = state.handshake
    if isinstance(fact, f.HandshakeSucceeded) and known is not None:
        return after_handshake(replace(state, handshake=replace(known, key=fact.key)), fact)
    return after_handshake(state, fact)


def _always() -> bool:
    return True


def _without_lease(**members: Any) -> Attempt:
    return Attempt(**members | {"may_start": _always})


def _started_without_bucket(state: State, policy: Policy, at: float, bucket: Bucket | None) -> f.Fact:
    return handshake_started(state, policy, at, None)


HANDSHAKE_MUTANTS = [
    Mutant("handshake-skipped", "nothing is posted to a receiver that has not proved itself",
           ((next_step, "is_verified", _verified_at_once),),
           scenarios.receiver_does_not_prove_itself_at_first),
    Mutant("handshake-proof", "a handshake succeeds only with the proof that the receiver has a secret",
           ((answers, "check_proof", _any_success),),
           scenarios.secret_is_replaced),
    Mutant("handshake-secrets", "another secret needs another handshake",
           ((proof, "key_of", _key_without_secrets),),
           scenarios.secret_is_replaced),
    Mutant("handshake-url", "another URL needs another handshake",
           ((proof, "key_of", _key_without_url),),
           scenarios.url_is_replaced),
    Mutant("handshake-outdated", "the outcome of a handshake is about the URL and secrets that it began with",
           ((decide, "handshake_ended", _about_what_is_in_force), (evolve, "after_handshake", _fold_any_key)),
           scenarios.secret_is_replaced_during_a_handshake),
    Mutant("handshake-unconfirmed", "nothing is posted before the proof is recorded",
           ((live_state, "NEEDS_NO_CONFIRMATION", (*decide.NEEDS_NO_CONFIRMATION, f.HandshakeSucceeded)),),
           scenarios.owner_dies_before_the_proof_is_recorded),
    Mutant("handshake-lease", "a handshake begins only within the lease",
           ((handshaking, "Attempt", _without_lease),),
           scenarios.owner_sleeps_through_its_handshake),
    Mutant("handshake-token", "the record of a handshake has the bucket without its token",
           ((decide, "handshake_started", _started_without_bucket),),
           scenarios.node_dies_after_a_handshake),
    Mutant("handshake-rate", "the rate that a receiver allows in its handshake lowers the configured one",
           ((deciding, "allowed_per_minute", lambda answer: None),),
           scenarios.receiver_allows_few_requests),
]  # fmt: skip
