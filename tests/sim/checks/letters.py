"""Dead letters: each event that the journals give up is in their stream once, with number and reason.

Twice only if more than the duplicate window lay between: the owner that followed one that vanished while it
buried came late. And nothing else lies there.
"""

from collections.abc import Callable

from actors.machine import facts as f
from streams.installation.topology import DUPLICATE_WINDOW_S
from tests.sim.checks.ledger import Deliveries
from tests.sim.server.streams.store import Stored


class Letters:
    """The dead letters of all receivers."""

    def __init__(self, deliveries: Deliveries, fail: Callable[[str], None]) -> None:
        self._deliveries = deliveries
        self._fail = fail
        self._owed: dict[tuple[str, str], tuple[int, str]] = {}
        self._found: dict[tuple[str, str], list[Stored]] = {}

    def given_up(self, fact: f.Fact) -> None:
        """A fact that is in the journal."""
        match fact:
            case f.DeadLettered(receiver=receiver, events=events, reason=reason):
                for each in events:
                    self._owe(receiver, str(each.sequence), each.position, reason)
            case f.TurnedAway(events=unknown, discarded=False):
                for burial in unknown:
                    number = f"p{burial.position}"
                    self._owe(burial.receiver, number, burial.position, burial.reason)
            case f.EventRefused(receiver=receiver, position=position, reason=reason):
                self._owe(receiver, f"p{position}", position, reason)

    def _owe(self, receiver: str, number: str, position: int, reason: str) -> None:
        before = self._owed.setdefault((receiver, number), (position, reason))
        if before != (position, reason):
            self._fail(f"{receiver}: number {number} is given up at {before} and at {position}, {reason}")

    def stored(self, message: Stored) -> None:
        """A letter of a receiver.

        Those of routers are judged with the copies (`fanout`), those of strays by themselves (`strays`).
        """
        receiver, headers = message.subject.split(".", 2)[2], message.headers or {}
        number = headers["Nats-Msg-Id"].removeprefix(f"{receiver}:")
        if not number.startswith("e") and "._" not in receiver:
            self._found.setdefault((receiver, number), []).append(message)

    def check(self) -> None:
        """All is quiet."""
        for (receiver, number), (position, reason) in self._owed.items():
            found = self._found.pop((receiver, number), [])
            who = f"{receiver}: the event at {position}, given up as number {number},"
            if not found:
                self._fail(f"{who} has no letter")
            for letter, before in zip(found[1:], found, strict=False):
                if letter.at_ns - before.at_ns < DUPLICATE_WINDOW_S * 1e9:
                    self._fail(f"{who} has {len(found)} letters")
            for letter in found:
                headers = letter.headers or {}
                if headers["Angarium-Reason"] != reason:
                    self._fail(f"{who} has a letter for {headers['Angarium-Reason']}, not {reason}")
                gone = position in self._deliveries.deleted and "Angarium-Id" not in headers
                if not gone and headers.get("Angarium-Id") != self._deliveries.event(position).id:
                    self._fail(f"{who} has a letter of {headers.get('Angarium-Id')}")
        if self._found:
            self._fail(f"letters that nothing names: {sorted(self._found)}")
