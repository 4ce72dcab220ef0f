"""The trees of a transform's pointers, which are made once for all bodies, within a bound of memory."""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from msgspec import Struct

from actors.configuration.transform import Token, Transform, parsed_pointer

KEPT_NODES_MAX = 1 << 16
"""Nodes of all trees that are kept, some 230 bytes each. One transform has 2,100 at most."""


class PointerNode(Struct):
    """A place in the tree of pointers: what its tokens lead to, and whether a pointer ends here."""

    following: dict[Token, "PointerNode"]
    ends: bool = False


class PointerTrees(Struct, frozen=True):
    """The trees of the three lists of a transform, and the number of their nodes."""

    keep: PointerNode | None
    drop: PointerNode | None
    pseudonymize: PointerNode | None
    size: int


def trees_of(transform: Transform) -> PointerTrees:
    """The trees of a transform."""
    (keep, kept), (drop, dropped), (pseudonymize, replaced) = map(
        _tree, (transform.keep or (), transform.drop, transform.pseudonymize)
    )
    return PointerTrees(keep, drop, pseudonymize, kept + dropped + replaced)


def _tree(pointers: Sequence[str]) -> tuple[PointerNode | None, int]:
    """The tree of these pointers, which share their beginnings, and its size; None without any."""
    root, count = PointerNode({}), 1
    for pointer in pointers:
        node = root
        for token in parsed_pointer(pointer):
            following = node.following.get(token)
            if following is None:
                following = node.following[token] = PointerNode({})
                count += 1
            node = following
        node.ends = True
    return (root, count) if pointers else (None, 0)


class KeptTrees:
    """The trees of the transforms that were used last, with `nodes` in all. Threads may share it."""

    def __init__(self, nodes_max: int = KEPT_NODES_MAX) -> None:
        self._nodes_max = nodes_max
        self._lock = Lock()
        self._kept: OrderedDict[Transform, PointerTrees] = OrderedDict()
        self.nodes = 0

    def of(self, transform: Transform) -> PointerTrees:
        """The trees of a transform. If there are too many, those go that have not been used for longest."""
        with self._lock:
            found = self._kept.get(transform)
            if found is not None:
                self._kept.move_to_end(transform)
                return found
            found = self._kept[transform] = trees_of(transform)
            self.nodes += found.size
            while self.nodes > self._nodes_max:
                self.nodes -= self._kept.popitem(last=False)[1].size
            return found
