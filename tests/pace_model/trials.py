"""Trials: the score of a rule on a plant, against an oracle that knows the plant."""

from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct

from actors.machine.pace.after_429 import After429Rule
from actors.machine.pace.combined import CombinedRules
from actors.machine.pace.concurrency import ConcurrencyRule
from actors.machine.pace.headers import HeadersRule
from actors.machine.pace.pace import PaceRule
from actors.machine.pace.smart import SmartRule
from tests.pace_model.cases import Case
from tests.pace_model.other_rules import FewWaiting, LatencyGradient
from tests.pace_model.receivers import HiddenLimit, WorkerPool
from tests.pace_model.sender import Sender, SenderProfile
from tests.pace_model.timeline import Timeline

LEARNT_S = 120
"""Time after which a rule has learnt: the steady state begins."""
LENGTH_S = 600
JOINS_S = 60.0
"""Time after which the next sender on a shared plant begins."""
RECOVERED_PART, RECOVERED_FOR_S = 0.9, 10
"""A sender has recovered if it delivers this part of what is possible for that long."""


class Score(Struct, frozen=True, kw_only=True):
    """Score of a rule on a plant.

    - `lost`: the part of the oracle's deliveries that it missed in the steady state; `lost_at_first` before.
    - `refused`: the part of its attempts in the steady state that got 429 or 503, or took too long.
    - `fairness`: Jain's index of the senders' deliveries in the second half; None for one sender.
    - `facts`: records a second about the pace, of the sender with the highest number.
    - `recovery_s`: time from the last doubling of the plant to nine tenths of its capacity; None without one.
    """

    lost: float
    lost_at_first: float
    refused: float
    fairness: float | None
    facts: float
    recovery_s: float | None


def _with_headers(rule: PaceRule, profile: SenderProfile) -> PaceRule:
    return CombinedRules((HeadersRule(profile.rate.per_second), rule))


HEADERS = "headers"
"""Rules with that name differ from others only on plants that tell something."""
RULES: dict[str, Callable[[SenderProfile], PaceRule]] = {
    "none": lambda profile: CombinedRules(),
    "after_429": lambda profile: After429Rule(profile.rate.per_second),
    HEADERS: lambda profile: HeadersRule(profile.rate.per_second),
    f"{HEADERS}, after_429": lambda profile: _with_headers(After429Rule(profile.rate.per_second), profile),
    "AIMD": lambda profile: ConcurrencyRule(profile.concurrency),
    "gradient": lambda profile: LatencyGradient(profile.concurrency),
    "Vegas": lambda profile: FewWaiting(profile.concurrency),
    "smart": lambda profile: SmartRule(profile.rate.per_second),
    f"{HEADERS}, smart": lambda profile: _with_headers(SmartRule(profile.rate.per_second), profile),
}
"""The rules of the table. `headers, after_429` is the default of the contract."""


def jain_fairness(shares: Sequence[float]) -> float:
    """Jain's index: 1 if all get the same, 1/n if one of n gets everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def run_trial(
    case: Case,
    rule: Callable[[SenderProfile], PaceRule],
    seed: int = 1,
    length_s: int = LENGTH_S,
    taken_over_at: Sequence[float] = (),
) -> Score:
    """The score of the rule on this plant; at each time of `taken_over_at` the senders get another owner."""
    timeline = Timeline()
    plant = case.build(timeline, Random(seed), length_s)
    senders = list[Sender]()
    for number in range(case.senders):
        chance = Random(f"{seed} {number}")
        sender = Sender(timeline, plant, case.profile, rule(case.profile), chance, length_s)
        timeline.plan(number * JOINS_S, sender.start)
        for at in taken_over_at:
            timeline.plan(at, sender.take_over)
        senders.append(sender)
    timeline.run_until(length_s)
    best = [case.best(plant, second) for second in range(length_s)]
    tallies = [sender.tally for sender in senders]
    total = [sum(tally.delivered[second] for tally in tallies) for second in range(length_s)]
    doubled_at = plant.doubled_at if isinstance(plant, WorkerPool | HiddenLimit) else []
    attempts = sum(sum(tally.attempts[LEARNT_S:length_s]) for tally in tallies)
    return Score(
        lost=1 - sum(total[LEARNT_S:]) / sum(best[LEARNT_S:]),
        lost_at_first=1 - sum(total[:LEARNT_S]) / sum(best[:LEARNT_S]),
        refused=sum(sum(tally.refused[LEARNT_S:length_s]) for tally in tallies) / max(1, attempts),
        fairness=jain_fairness([sum(tally.delivered[length_s // 2 :]) for tally in tallies])
        if len(tallies) > 1
        else None,
        facts=max(tally.facts for tally in tallies) / length_s,
        recovery_s=recovery_s(total, best[-1], int(doubled_at[-1])) if doubled_at else None,
    )


def recovery_s(total: Sequence[int], capacity: float, since: int) -> float:
    """Time from `since` until the deliveries are near the capacity; infinite if they never are."""
    enough = RECOVERED_PART * RECOVERED_FOR_S * capacity
    for second in range(since, len(total) - RECOVERED_FOR_S):
        if sum(total[second : second + RECOVERED_FOR_S]) >= enough:
            return float(second - since)
    return float("inf")
