"""Numbering: the frontier of a receiver and its dedup window decide which event gets the next number.

A receiver's events have one order, that of its subject in the stream, and each number goes to the next event
that is not a duplicate. Nothing else decides, so everybody who folds the journal gives an event the same
number, and no write has to precede a POST.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from actors.ids import KEY_BYTES, dedup_key
from actors.machine.event import Event


class Numbered(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An event with its number, as outcome facts carry it. `type` is empty in facts of older versions.

    - `published_at`: for a copy, when the original was published, if that was well before.
    - `transform`: the revision of the configuration by whose transform its body is shaped; 0: by none.
    - `transform_gone`: the revision of its first attempt, if its body differs from that of then. It is
      `transform` itself if only the key of its pseudonyms is another.
    """

    sequence: int
    position: int
    id: str
    stored_at: float
    again: str = ""
    source: int = 0
    type: str = ""
    published_at: float = 0.0
    transform: int = 0
    transform_gone: int = 0

    @property
    def accepted_at(self) -> float:
        """When the event was accepted from its producer."""
        return self.published_at or self.stored_at


def with_number(event: Event, sequence: int, transform: int = 0) -> Numbered:
    """The event with that number, and the revision of its transform."""
    return Numbered(
        sequence=sequence, position=event.position, id=event.id, stored_at=event.stored_at,
        again=event.again, source=event.source, type=event.type, published_at=event.published_at,
        transform=transform,
    )  # fmt: skip


class Frontier(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The last numbered event of a receiver, and the window in which duplicates are recognised.

    - `position`: everything up to here is numbered.
    - `sequence`: the last number.
    - `source`: the highest source.
    - `window`: keys of the last `size` numbered events, packed, the newest last.
    - `change`: another size, and the position beyond which it applies: no owner can have posted an event
      beyond it under the old size.
    """

    position: int = 0
    sequence: int = 0
    source: int = 0
    window: bytes = b""
    size: int = 256
    change: tuple[int, int] | None = None

    def size_at(self, position: int) -> int:
        """The window's size for an event at `position`."""
        return self.change[1] if self.change and position > self.change[0] else self.size


def is_duplicate(frontier: Frontier, event: Event) -> bool:
    """True if an event beyond the frontier must not be given to the receiver again."""
    if event.source and event.source <= frontier.source:
        return True
    window = frontier.window[-frontier.size_at(event.position) * KEY_BYTES :]
    return _holds(window, event.key)


def next_in_order(frontier: Frontier, waiting: Iterable[Event], count_max: int) -> list[Event]:
    """The next events that get numbers, up to one that gets no attempt.

    Each is judged by `is_duplicate`, with the frontier as those before it leave it, which `advance` says.
    """
    window, source, found, room = bytearray(frontier.window), frontier.source, list[Event](), count_max
    size, change = frontier.size * KEY_BYTES, frontier.change
    for event in waiting:
        if room <= 0 or event.malformed or event.unshapeable:
            break
        position = event.position
        if position <= frontier.position or (event.source and event.source <= source):
            continue
        if change and position > change[0]:
            size, change = change[1] * KEY_BYTES, None
        if (surplus := len(window) - size) > 0:
            del window[:surplus]
        if not _holds(window, key := event.key):
            found.append(event)
            room -= 1
            window += key
            if event.source > source:
                source = event.source
    return found


def _holds(window: bytes | bytearray, key: bytes) -> bool:
    """True if one of the packed keys is `key`: a scan as fast as memchr, then a check of alignment."""
    found = window.find(key)
    while found >= 0 and found % KEY_BYTES:
        found = window.find(key, found + 1)
    return found >= 0


def advance(frontier: Frontier, event: Numbered) -> Frontier:
    """The frontier after an event with its number. One that it has passed changes nothing."""
    if event.position <= frontier.position:
        return frontier
    size, change = frontier.size, frontier.change
    if change and event.position > change[0]:
        size, change = change[1], None
    return Frontier(
        position=event.position,
        sequence=event.sequence,
        source=max(frontier.source, event.source),
        window=(frontier.window + dedup_key(event.id, event.again))[-size * KEY_BYTES :],
        size=size,
        change=change,
    )


def advance_all(frontier: Frontier, events: Sequence[Numbered]) -> Frontier:
    """The frontier after these events, as `advance` leaves it after the last. The window is copied once."""
    if len(events) == 1 or frontier.change is not None:
        for event in events:
            frontier = advance(frontier, event)
        return frontier
    passed, position, source = list[Numbered](), frontier.position, frontier.source
    for event in events:
        if event.position > position:
            position = event.position
            if event.source > source:
                source = event.source
            passed.append(event)
    if not passed:
        return frontier
    keys = b"".join([dedup_key(event.id, event.again) for event in passed])
    return Frontier(
        position=position,
        sequence=passed[-1].sequence,
        source=source,
        window=(frontier.window + keys)[-frontier.size * KEY_BYTES :],
        size=frontier.size,
    )


def move_frontier(
    frontier: Frontier, position: int, next_sequence: int, source: int = 0, keys: bytes = b""
) -> Frontier:
    """The frontier after everything up to `position` is given up; numbers continue with `next_sequence`.

    `source` is the highest source of the given-up events; `keys` enter the window, the newest last.
    """
    size, change = frontier.size, frontier.change
    if change and position > change[0] and keys:
        size, change = change[1], None
    return Frontier(
        position=max(frontier.position, position),
        sequence=max(frontier.sequence, next_sequence - 1),
        source=max(frontier.source, source),
        window=(frontier.window + keys)[-size * KEY_BYTES :] if keys else frontier.window,
        size=size,
        change=change,
    )


def without_keys(window: bytes, keys: set[bytes]) -> bytes:
    """The window without these keys."""
    if not keys:
        return window
    packed = (window[start : start + KEY_BYTES] for start in range(0, len(window), KEY_BYTES))
    return b"".join(each for each in packed if each not in keys)


def resize(frontier: Frontier, size: int, above: int) -> Frontier:
    """The frontier with a window of `size` for events beyond `above`."""
    if above <= frontier.position:
        return replace(frontier, size=size, window=frontier.window[-size * KEY_BYTES :], change=None)
    return replace(frontier, change=(above, size))
