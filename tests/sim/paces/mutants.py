"""Rules about learnt paces, each taken out by itself."""

from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.machine import evolve
from actors.machine import facts as f
from actors.machine.pace.after_429 import After429
from actors.machine.pace.pace import NO_PACE_LIMITS, Observed, Pace
from actors.machine.pace.smart import Smart
from actors.machine.scheduling import next_step
from actors.machine.state import State
from actors.memory.tokens import Tokens
from streams.journal.journal import Journal
from tests.sim.mutants.mutant import Mutant
from tests.sim.paces import scenarios

_add = Journal.add


def _add_no_pace(log: Journal, fact: f.Fact, state: State, urgent: bool = False) -> int:
    """Keep what was learnt from the journal: only this owner knows it."""
    if isinstance(fact, f.PaceSet):
        return log.index
    return _add(log, fact, replace(state, pace=None, throttled_until=0.0), urgent)


def _unthrottled(state: State, fact: f.PaceSet) -> State:
    return replace(state, pace=fact.pace)


def _forgetful(state: State, fact: f.PaceSet) -> State:
    return state


def _undisturbed(rule: After429 | Smart, pace: Pace, observed: Observed, now: float) -> Pace:
    return pace


def _at_once(state: State, policy: Policy, now: float, paced_at: float) -> float:
    return 0.0


PACE_MUTANTS = [
    Mutant("pace-unrecorded", "what is learnt is a fact, so a takeover continues with it",
           ((Journal, "add", _add_no_pace),), scenarios.nothing_is_left_when_the_owner_dies),
    Mutant("pace-unthrottled", "a receiver with nothing left is throttled until the reset",
           ((evolve, "after_lesson", _unthrottled),), scenarios.nothing_is_left_when_the_owner_dies),
    Mutant("pace-unspaced", "attempts under a learnt rate come evenly",
           ((next_step, "paced_start_at", _at_once),), scenarios.little_is_left_when_the_owner_dies),
    Mutant("pace-undisturbed", "a 429 halves the rate",
           ((After429, "learn", _undisturbed),), scenarios.receiver_answers_429_and_its_owner_dies),
    Mutant("pace-burst", "no burst follows a learnt rate",
           ((Tokens, "keep_one", lambda tokens: None),), scenarios.learnt_rate_ends),
    Mutant("pace-blind", "smart lowers the rate where the receiver refuses",
           ((Smart, "learn", _undisturbed),), scenarios.hidden_limit_is_found_and_the_owner_dies),
    Mutant("pace-unlearnt", "smart continues with the recorded pace",
           ((evolve, "after_lesson", _forgetful),), scenarios.hidden_limit_is_found_and_the_owner_dies),
    Mutant("pace-wide", "the attempts in flight are bounded by what was learnt",
           ((next_step, "pace_limits", lambda state, policy, now: NO_PACE_LIMITS),),
           scenarios.few_attempts_at_once_are_learnt),
]  # fmt: skip
