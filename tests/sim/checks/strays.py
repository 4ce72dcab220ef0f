"""Strays: messages that the server accepts and that belong to no shard. Each becomes a letter, and then goes.

An event of a type with several tokens is not found by a filter: it may stay, and is purged with others.
"""

from collections.abc import Callable

from actors.errors import InvalidName
from actors.ids import check_tenant, stable_hash
from streams.installation.topology import DUPLICATE_WINDOW_S, Names
from tests.sim.server.streams.store import Stored

Place = tuple[str, int]
"""A stream and a position in it."""


class Strays:
    """The strays of one run. `buried` counts those that have gone."""

    def __init__(self, names: Names, fail: Callable[[str], None]) -> None:
        self.buried = 0
        self._names = names
        self._fail = fail
        self._there: dict[Place, Stored] = {}
        self._letters: dict[tuple[str, str], Stored] = {}

    def stored(self, stream: str, message: Stored) -> bool:
        """Hear of what is stored; returns whether it is a stray."""
        if stream == self._names.dead_letters:
            self._letter(message)
            return False
        match stream:
            case self._names.deliveries:
                is_stray = self._names.shard_and_receiver(message.subject) is None
            case self._names.events:
                is_stray = self._names.partition_and_tenant(message.subject) is None
            case _:
                is_stray = False
        if is_stray:
            self._there[stream, message.sequence] = message
        return is_stray

    def gone(self, stream: str, position: int) -> bool:
        """Judge that a message is gone; returns whether it was a stray."""
        stray = self._there.pop((stream, position), None)
        if stray is not None and self._is_found(stream, stray):
            self.buried += 1
            self._check_letter((stream, position), stray)
        return stray is not None

    def purged(self, stream: str, first: int) -> None:
        """Judge that the stream has nothing below `first` any more."""
        for each, position in [place for place in self._there if place[0] == stream and place[1] < first]:
            self.gone(each, position)

    def unsettled(self) -> str:
        """Says in a sentence which stray is left that a filter finds, or nothing."""
        for (stream, position), stray in self._there.items():
            if self._is_found(stream, stray):
                return f"the stray at {position} of {stream} is not buried: {stray.subject}"
        return ""

    def _is_found(self, stream: str, stray: Stored) -> bool:
        return stream == self._names.deliveries or stray.subject.count(".") == 3

    def _letter(self, message: Stored) -> None:
        receiver, headers = message.subject.split(".", 2)[2], message.headers or {}
        if "._" in receiver:
            key = receiver, headers["Nats-Msg-Id"].rpartition(":")[2]
            before = self._letters.get(key)
            if before is not None and message.at_ns - before.at_ns < DUPLICATE_WINDOW_S * 1e9:
                self._fail(f"there are two letters of {key} for {receiver}")
            self._letters[key] = message

    def _check_letter(self, place: Place, stray: Stored) -> None:
        stream, position = place
        tenant = stray.subject.split(".")[2]
        try:
            check_tenant(tenant)
        except InvalidName:
            tenant = f"_{stable_hash(tenant)}"
        kind = "p" if stream == self._names.deliveries else "e"
        letter = self._letters.get((f"{tenant}._events", f"{kind}{position}"))
        if letter is None or letter.data != stray.data:
            self._fail(f"the stray at {position} of {stream} is gone, and has no letter: {stray.subject}")
