"""The learnt pace of a receiver, as it bounds the next attempt: the limits in force, and when it is due."""

from actors.configuration.policy import Policy
from actors.machine.pace.combined import rules_in_force
from actors.machine.pace.pace import NO_PACE_LIMITS, NOTHING_LEARNT, PaceLimits
from actors.machine.state import State

DUE_WITHIN_S = 0.05
"""A rate that grows back makes an attempt due sooner; the time is known to that part of a second."""


def pace_limits(state: State, policy: Policy, now: float) -> PaceLimits:
    """The learnt limits in force at a time; most receivers have none."""
    if state.pace is None and not policy.adaptive.smart:
        return NO_PACE_LIMITS
    return rules_in_force(policy, state.limit).limits(state.pace or NOTHING_LEARNT, now)


def paced_start_at(state: State, policy: Policy, now: float, paced_at: float) -> float:
    """The time at which the next attempt is due under the learnt rate, if the last one was at `paced_at`."""
    earliest, due_at = now, paced_at + spacing_s(state, policy, now)
    while due_at - earliest > DUE_WITHIN_S:
        middle = (earliest + due_at) / 2
        if paced_at + spacing_s(state, policy, middle) <= middle:
            due_at = middle
        else:
            earliest = middle
    return due_at


def spacing_s(state: State, policy: Policy, now: float) -> float:
    """The time between two attempts under the learnt rate of that time; 0.0 without one."""
    per_second = pace_limits(state, policy, now).per_second
    return 0.0 if per_second is None else 1 / per_second
