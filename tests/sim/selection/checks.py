"""A second opinion on which events a receiver wants, by its patterns, its regions and its filter.

The filter is evaluated by the package `jmespath`, which has no bounds; the product only uses its grammar.
"""

from functools import lru_cache

import jmespath
import msgspec
from msgspec import Struct

from tests.sim.server.subjects import covers


class Wish(Struct, frozen=True):
    """The events that a configuration asks for; without `regions`, those of all."""

    patterns: tuple[str, ...] = ()
    filter: str | None = None
    regions: tuple[str, ...] = ()

    def takes(self, event_type: str, body: bytes, region: str) -> bool:
        """True if its receiver gets such an event."""
        beginning = "angarium." if event_type.startswith("angarium.") else ""
        if not any(covers(each, event_type) for each in self.patterns if each.startswith(beginning)):
            return False
        if self.regions and region and region not in self.regions:
            return False
        return self.filter is None or _passes(self.filter, body)


NOTHING = Wish()
"""The wish of a receiver that does not exist."""


def wish_of(raw: bytes) -> Wish:
    """The wish in a stored configuration; nothing in a removal."""
    if not raw:
        return NOTHING
    members = msgspec.json.decode(raw)
    return Wish(
        tuple(members.get("events", [">"])), members.get("filter"), tuple(members.get("region") or ())
    )


@lru_cache(maxsize=1 << 14)
def _passes(text: str, body: bytes) -> bool:
    try:
        found = jmespath.search(text, msgspec.json.decode(body))
    except ValueError:  # It is not JSON, or the expression fails on it.
        return False
    return found is not None and found is not False and found not in ("", [], {})
