"""Promise 4, in true time: in any window at most burst + rate · t attempts start for a receiver.

The form that survives a change of configuration: at most the burst in force at the window's start plus the
integral over it of the rate in force, where in force is what the journal says. A start counts at the moment
when its token was taken. Judged at the end, since tokens come to light only when the attempts start.
"""

from collections.abc import Iterator

from actors.machine.bucket import RateLimit

EXCESS = 1e-5
"""Tokens that rounding may add up to: instants since the epoch are exact to 2.4e-7 s, and ten come in one."""


class Rates:
    """The rate of one receiver. `takes` are the instants at which started attempts took their tokens."""

    def __init__(self) -> None:
        self.limits: list[tuple[float, RateLimit | None]] = []
        self.takes: list[float] = []

    def excess(self) -> str:
        """Says in a sentence what is wrong; nothing if all is well."""
        force: RateLimit | None = None
        since = granted = 0.0
        least = float("inf")
        started = 0
        for at, limit, is_start in self._in_order():
            if force is None:
                least = float("inf")
            else:
                granted += (at - since) * force.per_second
            since = at
            if not is_start:
                force = limit
            elif force is not None:
                least = min(least, force.burst + started - granted)
                started += 1
                if started - granted - least > EXCESS:
                    over = started - granted - least
                    return f"{over:.3f} attempts too many at {at:.6f} s, under {force}"
        return ""

    def _in_order(self) -> Iterator[tuple[float, RateLimit | None, bool]]:
        changes: list[tuple[float, RateLimit | None, bool]] = [
            (at, limit, False) for at, limit in self.limits
        ]
        changes += [(at, None, True) for at in self.takes]
        yield from sorted(changes, key=lambda each: (each[0], each[2]))
