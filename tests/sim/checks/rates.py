"""The rates of receivers and of tenants, in true time.

Promise 4 is about receivers: in any window at most burst + rate · t attempts start for one. The form that
survives a change of configuration: at most the burst in force at the window's start plus the integral over it
of the rate in force, where in force is what the journal says. A start counts at the moment when its token was
taken. Judged at the end, since tokens come to light only when the attempts start.

The events of a tenant are counted for each router, which begins with one token.
"""

from collections.abc import Callable, Iterator, Mapping

from actors.machine.bucket import RateLimit
from actors.tenant_settings import SettingsByTenant, TenantSettings

EXCESS = 1e-5
"""Tokens that rounding may add up to: instants since the epoch are exact to 2.4e-7 s, and ten come in one."""


class Rates:
    """The rate of one receiver. `takes` are the instants at which started attempts took their tokens."""

    def __init__(self) -> None:
        self.limits: list[tuple[float, RateLimit | None]] = []
        self.takes: list[float] = []

    def excess(self) -> str:
        """Says in a sentence what is wrong; nothing if all is well."""
        count = max((1 + len(limit.others) for _, limit in self.limits if limit), default=0)
        return next(filter(None, (self._excess(index) for index in range(count))), "")

    def _excess(self, index: int) -> str:
        """Judges one of the limits that hold together."""
        force: RateLimit | None = None
        since = granted = 0.0
        least = float("inf")
        started = 0
        for at, limit, is_start in self._in_order(index):
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

    def _in_order(self, index: int) -> Iterator[tuple[float, RateLimit | None, bool]]:
        changes: list[tuple[float, RateLimit | None, bool]] = [
            (at, _limit(limit, index), False) for at, limit in self.limits
        ]
        changes += [(at, None, True) for at in self.takes]
        yield from sorted(changes, key=lambda each: (each[0], each[2]))


def _limit(limit: RateLimit | None, index: int) -> RateLimit | None:
    """The limit with that index among those that hold together; None if there are fewer."""
    limits = () if limit is None else (limit, *limit.others)
    return limits[index] if index < len(limits) else None


class RatesOfTenants:
    """The rates at which routers take events of tenants."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._settings = SettingsByTenant()
        self._fail = fail
        self._left: dict[tuple[object, str], tuple[float, float]] = {}

    def begin(self, tenants: Mapping[str, TenantSettings]) -> None:
        """Judge by these settings."""
        self._settings = SettingsByTenant(tenants)

    def taken(self, router: object, tenant: str, now: float) -> None:
        """A router takes an event of the tenant, to send its copies."""
        limit = self._settings.limit(tenant)
        if limit is None:
            return
        left, at = self._left.get((router, tenant), (1.0, now))
        left = min(limit.burst, left + (now - at) * limit.per_second) - 1
        self._left[router, tenant] = left, now
        if left < -EXCESS:
            self._fail(f"{-left:.3f} events of {tenant} too many are routed, under {limit}")
