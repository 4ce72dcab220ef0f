"""Dead letters: each event that the journals give up is in their stream once, with number and reason.

Events that are discarded, since they belong to another region, have none.

Twice only if the owner vanished while it buried, and the server no longer knows the id of the first letter
when the next owner stores it again: more than the duplicate window lay between, or the first was redriven
before the server was started again. And nothing else lies there.
"""

from collections.abc import Callable

from actors.machine import facts as f
from streams.installation.topology import DUPLICATE_WINDOW_S
from tests.sim.checks.folded_journals import Deliveries
from tests.sim.server.streams.store import Stored


class Letters:
    """The dead letters of all receivers."""

    def __init__(self, deliveries: Deliveries, fail: Callable[[str], None]) -> None:
        self._deliveries = deliveries
        self._fail = fail
        self._owed: dict[tuple[str, str], tuple[int, str]] = {}
        self._found: dict[tuple[str, str], list[Stored]] = {}
        self._deleted: set[int] = set()
        self._forgotten: set[int] = set()

    @property
    def reasons(self) -> list[str]:
        """Why events were given up, in the order of the journals."""
        return [reason for _, reason in self._owed.values()]

    def given_up(self, fact: f.Fact) -> None:
        """A fact that is in the journal."""
        match fact:
            case f.DeadLettered(receiver=receiver, events=events, reason=f.OUTSIDE_REGION):
                for each in events:
                    if not self._deliveries.event(each.position).region:
                        self._fail(
                            f"{receiver}: the event at {each.position} has no region, and is discarded"
                        )
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
            found = self._found.setdefault((receiver, number), [])
            if found and self._is_known(found[-1], message.at_ns):
                self._fail(f"{receiver}: number {number} has two letters")
            found.append(message)

    def deleted(self, position: int) -> None:
        """A letter that was redriven, or erased."""
        self._deleted.add(position)

    def server_started(self) -> None:
        """The server knows the ids of what is stored."""
        self._forgotten |= self._deleted

    def _is_known(self, letter: Stored, at_ns: int) -> bool:
        """True if the server knew the letter's id at that time."""
        return letter.sequence not in self._forgotten and at_ns - letter.at_ns < DUPLICATE_WINDOW_S * 1e9

    def check(self) -> None:
        """All is quiet."""
        for (receiver, number), (position, reason) in self._owed.items():
            found = self._found.pop((receiver, number), [])
            who = f"{receiver}: the event at {position}, given up as number {number},"
            if not found:
                self._fail(f"{who} has no letter")
            for letter in found:
                headers = letter.headers or {}
                if headers["Angarium-Reason"] != reason:
                    self._fail(f"{who} has a letter for {headers['Angarium-Reason']}, not {reason}")
                gone = position in self._deliveries.deleted and "Angarium-Id" not in headers
                if not gone and headers.get("Angarium-Id") != self._deliveries.event(position).id:
                    self._fail(f"{who} has a letter of {headers.get('Angarium-Id')}")
        if self._found:
            self._fail(f"letters that nothing names: {sorted(self._found)}")
