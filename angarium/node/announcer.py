"""The log's lines about receivers: who was disabled, is offline, is back, or lacks a valid configuration.

One tenant with thousands of receivers that flap must not flood the log, nor hide the lines of another. So
each tenant has a few lines of each kind at once, then one a second, which says for how many it stands.
"""

import logging
from collections.abc import Callable

from actors.news import Name, News
from angarium.logs import instant
from angarium.sparing import Sparing

BURST = 8
TENANTS_MAX = 1024
"""Above so many, those who have nothing to say are forgotten."""
log = logging.getLogger(__name__)
_LINES: dict[Name, Callable[[], Sparing]] = {
    "disabled": lambda: Sparing(log, "receiver.disabled", burst=BURST),
    "offline": lambda: Sparing(log, "receiver.offline", burst=BURST),
    "misconfigured": lambda: Sparing(log, "receiver.misconfigured", burst=BURST),
    "recovered": lambda: Sparing(log, "receiver.recovered", burst=BURST, level=logging.INFO),
}


class Announcer:
    """Logs news of receivers, sparingly."""

    def __init__(self) -> None:
        self._sparing: dict[tuple[str, Name], Sparing] = {}

    def __call__(self, news: News) -> None:
        since = {} if news.since is None else {"since": instant(news.since)}
        self._of(news)(receiver=news.receiver, why=news.why, **since)

    def _of(self, news: News) -> Sparing:
        key = news.receiver.partition(".")[0], news.name
        found = self._sparing.get(key)
        if found is None:
            if len(self._sparing) >= TENANTS_MAX:
                self._sparing = {each: one for each, one in self._sparing.items() if not one.rests}
            found = self._sparing[key] = _LINES[news.name]()
        return found
