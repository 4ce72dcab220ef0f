"""The places that the pointers of a transform lead to, and the steps that a body may take.

Pointers with `*` overlap: `/*/b` and `/a/*` both lead to `/a/b`. The walk through a body follows all of them
at once: it is at one `Place`, which stands for every pointer that leads there. So the time that an element
takes does not grow with the number of pointers, only that of the first step into a new place does.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from msgspec import Struct

from actors.configuration.transform import ANY
from actors.errors import AngariumError
from angarium.delivery.shaping.pointer_trees import PointerNode

STEPS_MAX = 300_000
"""Steps of one body. A step is a tenth of a microsecond, so a body takes some 30 ms at most."""
BYTES_A_STEP = 64
"""Bytes of an object or array that are read in one step."""
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")


class TooManySteps(AngariumError):
    """The body takes more steps than it may."""


class Steps:
    """The steps that a body may still take. They depend on the body and the transform alone."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEPS_MAX

    def spend(self, count: int) -> None:
        """Take so many steps. Raises TooManySteps."""
        self.left -= count
        if self.left < 0:
            raise TooManySteps(f"more than {STEPS_MAX} steps")


class Place(Struct):
    """A place in a body: the nodes of all pointers that lead there, and the places that follow.

    - `ends`: a pointer ends here.
    - `named`: the place that each name leads to, if the pointers have it; None before the first step.
    - `other`: the place that any other name or index leads to; None: no pointer goes there.
    """

    nodes: Sequence[PointerNode]
    ends: bool
    named: "dict[str, Place] | None" = None
    other: "Place | None" = None

    def by_index(self, named: "dict[str, Place]", count: int) -> "Iterator[Place | None]":
        """Yield the place that each index of an array leads to."""
        indexes = {int(name): place for name, place in named.items() if _INDEX.match(name)}
        other = repeat(self.other, count)
        return map(indexes.get, range(count), other) if indexes else other


class Places:
    """The places of one list of pointers that a walk has come to."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._known: dict[tuple[int, ...], Place] = {}

    def of(self, nodes: Iterable[PointerNode]) -> Place:
        """The place of these nodes."""
        found = tuple(nodes)
        key = tuple(map(id, found))
        place = self._known.get(key)
        if place is None:
            place = self._known[key] = Place(found, any(each.ends for each in found))
        return place

    def following(self, place: Place) -> dict[str, Place]:
        """The places that names lead to from there; `other` is set, too."""
        if place.named is None:
            any_name = [each for node in place.nodes if (each := node.following.get(ANY)) is not None]
            names = {name for node in place.nodes for name in node.following if name is not ANY}
            self._steps.spend(4 * (1 + len(names)) * (1 + len(place.nodes)))
            place.other = self.of(any_name) if any_name else None
            place.named = {name: self.of(_by_name(place.nodes, name)) for name in names}
        return place.named


def _by_name(nodes: Iterable[PointerNode], name: str) -> Iterator[PointerNode]:
    """Yield the nodes that a name leads to; those of `*` are among them."""
    for node in nodes:
        for token in (ANY, name):
            if (each := node.following.get(token)) is not None:
                yield each
