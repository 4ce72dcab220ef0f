"""Backoff between attempts: exponential, with full jitter.

Full jitter, because receivers that failed together must not be retried together (Brooker, "Exponential
Backoff And Jitter", AWS Architecture Blog, 2015). The jitter is an argument, not drawn here, so that a
journal replays to the byte.
"""

DELAY_MIN_S = 0.05
"""The shortest delay, with any jitter."""


def longest_backoff_s(base_s: float, cap_s: float, failures: int) -> float:
    """The longest delay after the k-th failure."""
    return max(DELAY_MIN_S, min(cap_s, base_s * 2.0 ** min(failures - 1, 60)))


def backoff_s(base_s: float, cap_s: float, failures: int, spread: float) -> float:
    """The delay after the k-th failure: uniform in [0, min(cap, base·2^(k−1))], and at least DELAY_MIN_S.

    `spread` in [0, 1) is the jitter.
    """
    return max(DELAY_MIN_S, longest_backoff_s(base_s, cap_s, failures) * spread)
