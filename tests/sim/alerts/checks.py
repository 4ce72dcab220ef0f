"""Alerts: each is recorded once, in order, and its event is stored in that order, and not before.

An event may be stored again by another owner, as it was, and only if the server has forgotten its id,
or if the first one was purged: then the known id may as well be that of another producer's event.
"""

from collections.abc import Callable

import msgspec

from actors.configuration.policy import AlertLimits
from actors.machine import facts as f
from streams.installation.topology import DUPLICATE_WINDOW_S
from tests.sim.server.streams.store import Stored

INTERVAL_S = AlertLimits().interval_s
SKEW_S = 1.0


class Alerts:
    """The alerts of all receivers."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.recorded: dict[str, list[f.AlertFact]] = {}
        self.stored_events: dict[str, list[Stored]] = {}
        self._first_kept = 0
        self._purged = set[int]()

    def record(self, fact: f.Fact) -> None:
        """A fact that is in the journal."""
        match fact:
            case f.AlertRaised(receiver=receiver) | f.AlertRecovered(receiver=receiver):
                self._add(receiver, fact)
            case f.AlertsPublished(receiver=receiver, number=number):
                if number > len(self.stored_events.get(receiver, [])):
                    self._fail(f"{receiver}: its alert {number} is recorded as published, and is not stored")

    def _add(self, receiver: str, fact: f.AlertFact) -> None:
        before = self.recorded.setdefault(receiver, [])
        if fact.number != len(before) + 1:
            self._fail(f"{receiver}: {fact} follows {len(before)} alerts")
        of_kind = [each for each in before if each.alert == fact.alert]
        raised = isinstance(fact, f.AlertRaised)
        if raised is bool(of_kind and isinstance(of_kind[-1], f.AlertRaised)):
            self._fail(f"{receiver}: {fact} follows {of_kind[-1:]}")
        begun = [each.at for each in of_kind if isinstance(each, f.AlertRaised)]
        # A time that has not come is that of a node whose clock was ahead, and silences nothing.
        if raised and begun and 0 <= fact.at - begun[-1] < INTERVAL_S - SKEW_S:
            self._fail(f"{receiver}: {fact} comes too soon after {begun[-1]}")
        before.append(fact)

    def stored(self, message: Stored) -> None:
        """An event that the server stored."""
        headers = message.headers or {}
        receiver = headers.get("Angarium-About")
        if receiver is None:
            return
        body = msgspec.json.decode(message.data)
        number, known = body["number"], self.recorded.get(receiver, [])
        if number > len(known):
            self._fail(f"{receiver}: the event about its alert {number} is stored, which nothing records")
            return
        fact = known[number - 1]
        change = "raised" if isinstance(fact, f.AlertRaised) else "recovered"
        said = body["receiver"], body["alert"], body["change"]
        if said != (receiver, fact.alert, change) or not message.subject.endswith(f".alert.{fact.alert}"):
            self._fail(f"{receiver}: the event {body} is not about {fact}")
        seen = self.stored_events.setdefault(receiver, [])
        if number <= len(seen):
            first = seen[number - 1]
            if (first.data, (first.headers or {})["Angarium-Id"]) != (message.data, headers["Angarium-Id"]):
                self._fail(f"{receiver}: its alert {number} is told in two ways")
            is_kept = first.sequence >= self._first_kept and first.sequence not in self._purged
            if is_kept and message.at_ns - first.at_ns < DUPLICATE_WINDOW_S * 1e9:
                self._fail(f"{receiver}: its alert {number} has two events")
        elif number != len(seen) + 1:
            self._fail(f"{receiver}: its alert {number} is stored after {len(seen)} others")
        else:
            seen.append(message)

    def purged(self, first: int) -> None:
        """The stream of events has nothing below `first` any more."""
        self._first_kept = first

    def purged_one(self, position: int) -> None:
        """A purge by subject has taken an event."""
        self._purged.add(position)

    def unsettled(self) -> str:
        """Says in a sentence which event is missing, or nothing."""
        for receiver, known in self.recorded.items():
            if len(known) > (count := len(self.stored_events.get(receiver, []))):
                return f"{receiver}: the event about {known[count]} is not stored"
        return ""
