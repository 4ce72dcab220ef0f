"""Log lines about receivers: which were disabled, are offline, are back, may not get events; failed filters.

One tenant with thousands of flapping receivers must not flood the log, nor hide the lines of another. So each
tenant gets a few lines of each kind at once, then one per second, which says how many it stands for.
"""

import logging
from collections.abc import Callable
from typing import Literal, assert_never

from actors.ids import tenant_of
from actors.machine.alerts.health_changes import HealthChange, HealthChangeName
from actors.machine.facts import AlertFact, AlertRaised, AlertRecovered
from actors.times_as_text import instant_text
from angarium.rate_limited_log import RateLimitedLog
from streams.routing.selection.selection_totals import FailedFilter

BURST_MAX = 8
TENANTS_MAX = 1024
"""Number of tenants above which those with nothing to report are forgotten."""
log = logging.getLogger(__name__)
LineName = HealthChangeName | Literal["alert_raised", "alert_recovered", "filter_failed"]
_LINES: dict[LineName, Callable[[], RateLimitedLog]] = {
    "disabled": lambda: RateLimitedLog(log, "receiver.disabled", burst=BURST_MAX),
    "offline": lambda: RateLimitedLog(log, "receiver.offline", burst=BURST_MAX),
    "misconfigured": lambda: RateLimitedLog(log, "receiver.misconfigured", burst=BURST_MAX),
    "unverified": lambda: RateLimitedLog(log, "receiver.unverified", burst=BURST_MAX),
    "verified": lambda: RateLimitedLog(log, "receiver.verified", burst=BURST_MAX, level=logging.INFO),
    "recovered": lambda: RateLimitedLog(log, "receiver.recovered", burst=BURST_MAX, level=logging.INFO),
    "alert_raised": lambda: RateLimitedLog(log, "alert.raised", burst=BURST_MAX),
    "filter_failed": lambda: RateLimitedLog(log, "receiver.filter_failed", burst=BURST_MAX),
    "alert_recovered": lambda: RateLimitedLog(log, "alert.recovered", burst=BURST_MAX, level=logging.INFO),
}


class HealthLog:
    """Logs changes of the health of receivers, at a limited rate."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, LineName], RateLimitedLog] = {}

    def __call__(self, change: HealthChange) -> None:
        since = {} if change.since is None else {"since": instant_text(change.since)}
        self._line(change.receiver, change.name)(receiver=change.receiver, why=change.why, **since)

    def alert(self, fact: AlertFact) -> None:
        """Log a confirmed alert about a receiver."""
        match fact:
            case AlertRaised(since=since):
                line = self._line(fact.receiver, "alert_raised")
                when = {} if since is None else {"since": instant_text(since)}
            case AlertRecovered(raised_at=raised_at):
                line = self._line(fact.receiver, "alert_recovered")
                when = {"raised_at": instant_text(raised_at)}
            case _:
                assert_never(fact)
        line(receiver=fact.receiver, alert=fact.alert, number=fact.number, why=fact.why, **when)

    def filter_failed(self, failed: FailedFilter) -> None:
        """Log that an event was not sent, since the filter of a receiver could not be evaluated for it."""
        first, *others = failed.receivers
        more = {"others": len(others)} if others else {}
        self._line(first, "filter_failed")(
            receiver=first, type=failed.event_type, position=failed.position, reason=failed.reason,
            why=failed.why, **more,
        )  # fmt: skip

    def _line(self, receiver: str, name: LineName) -> RateLimitedLog:
        key = tenant_of(receiver), name
        found = self._lines.get(key)
        if found is None:
            if len(self._lines) >= TENANTS_MAX:
                self._lines = {each: one for each, one in self._lines.items() if not one.is_idle}
            found = self._lines[key] = _LINES[name]()
        return found
