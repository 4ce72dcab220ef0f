"""Many receivers of one host that come back: `python -m tests.pace_model.returning`.

Each was offline, has a full bucket, and more events waiting than it can be sent. The first contact with it
succeeds; then its events follow. A cell has the largest number of requests that start within a tenth of a
second, as a multiple of what the sum of their rates allows in that time.

The first contacts are made in turn, 64 in 50 ms for 10,000 receivers, as after a host was down; or all at
once, as after a takeover, and then only what follows them is counted.
"""

import sys
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from actors.ids import fraction
from actors.machine.alerts.returning import JITTER_MAX_S

COUNT = 10_000
TURNS_S = COUNT / 64 * 0.05
"""The time that the first contacts take in turn."""
HORIZON_S = 14.0
WINDOW_S = 0.1


class Case(Struct, frozen=True):
    """Receivers with a rate, a burst and a latency, that are let go in turn or at once."""

    name: str
    per_second: float
    burst: int
    latency_s: float = 0.02
    in_turn: bool = True


class ReturnRules(Struct, frozen=True):
    """The rules about a return: events begin at a moment of the receiver's own, with an empty bucket."""

    jitter: bool
    empties: bool


CASES = (
    Case("1 a second, burst 20", 1.0, 20),
    Case("10 a second, burst 10", 10.0, 10),
    Case("10 a second, burst 100", 10.0, 100),
    Case("0.2 a second, burst 5", 0.2, 5),
    Case("1 a second, burst 20, at once", 1.0, 20, in_turn=False),
    Case("10 a second, burst 10, at once", 10.0, 10, in_turn=False),
)
RULES = {
    "none": ReturnRules(jitter=False, empties=False), "jitter": ReturnRules(jitter=True, empties=False),
    "empty bucket": ReturnRules(jitter=False, empties=True), "both": ReturnRules(jitter=True, empties=True),
}  # fmt: skip


def starts(case: Case, rules: ReturnRules, name: str, contact_at: float) -> Iterator[float]:
    """Yield the times at which the requests to one receiver start, the first contact included."""
    yield contact_at
    begins_at = contact_at + case.latency_s + (JITTER_MAX_S * fraction(name, 0, 0) if rules.jitter else 0.0)
    left = case.burst - 1 + (begins_at - contact_at) * case.per_second
    tokens, now = 0.0 if rules.empties else min(float(case.burst), left), begins_at
    while now < HORIZON_S:
        if tokens < 1:
            tokens, now = 1.0, now + (1 - tokens) / case.per_second
        yield now
        # Strict order: the next request starts with the answer to this one.
        tokens, now = (
            min(float(case.burst), tokens - 1 + case.latency_s * case.per_second),
            now + case.latency_s,
        )


def peak(case: Case, rules: ReturnRules, count: int = COUNT) -> float:
    """The most requests within `WINDOW_S`, as a multiple of what the sum of the rates allows in it."""
    windows = Counter[int]()
    for number in range(count):
        contact_at = TURNS_S * number / count if case.in_turn else 0.0
        for index, at in enumerate(starts(case, rules, f"acme.r{number}", contact_at)):
            if case.in_turn or index:
                windows[int(at / WINDOW_S)] += 1
    return max(windows.values()) / (count * case.per_second * WINDOW_S)


def main() -> int:
    print(f"| receivers | {' | '.join(RULES)} |")
    print("| --- |" + " --- |" * len(RULES))
    for case in CASES:
        print(f"| {case.name} | {' | '.join(f'{peak(case, rules):.2f}' for rules in RULES.values())} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
