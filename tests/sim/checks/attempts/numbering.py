"""The numbers of events: each names one event of its receiver, and each event has one."""

from collections.abc import Callable

from actors.machine.event import Event


class Numbers:
    """`named`: the position of the event that a receiver's number names."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self.named: dict[tuple[str, int], int] = {}
        self._given: dict[tuple[str, int], int] = {}
        self._copies: dict[tuple[str, int], int] = {}
        self._fail = fail

    def has_started(self, receiver: str, position: int) -> bool:
        """True if an attempt of the event has started."""
        return (receiver, position) in self._given

    def started(self, receiver: str, event: Event, sequence: int) -> None:
        """Judge an event whose attempt starts now."""
        position = event.position
        number = self._given.setdefault((receiver, position), sequence)
        if number != sequence:
            self._fail(f"{receiver}: the event at {position} has the numbers {number} and {sequence}")
        named = self.named.setdefault((receiver, sequence), position)
        if named != position:
            self._fail(f"{receiver}: number {sequence} names the events at {named} and {position}")
        copied = self._copies.setdefault((receiver, event.source), position)
        if event.source and copied != position:
            self._fail(f"{receiver}: the copies at {copied} and {position} are of one event")
