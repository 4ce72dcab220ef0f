"""A count of calls: all functions that this thread calls while a profile is enabled, by folder.

On a shared machine rates and CPU differ by a tenth from one run to the next, and calls a delivery by a
hundredth: so the cost of a change is visible at once, and where it arises. How long the calls take is not
(see `angarium.bench.measuring.sampling`).
"""

from collections import Counter, defaultdict
from cProfile import Profile
from functools import cache
from types import CodeType

from msgspec import Struct

from angarium.bench.measuring.sampling import source_of

FOLDERS = {
    "actors/machine/": "machine",
    "actors/subscriptions": "routing",
    "actors/": "shell",
    "angarium/bench/": "",
    "angarium/delivery/": "transport",
    "angarium/node/": "shell",
    "nats/": "NATS client",
    "streams/fleet/": "shell",
    "streams/journal/": "journal",
    "streams/nats/": "NATS client",
    "streams/reading/": "reading",
    "streams/routing/": "routing",
}
"""Rooms by the beginnings of their files, the first that fits; the calls of the bench itself do not count."""

LOOP = "event loop"
"""The folder of everything else: the loop, and C functions that it calls."""


class Calls(Struct, frozen=True):
    """Calls per delivery, by folder and by qualified name of the function; calls into C count for the caller.

    Names without their module: moving a function within its folder changes nothing here.
    """

    by_folder: dict[str, dict[str, float]]

    @property
    def whole(self) -> float:
        """All calls for one delivery."""
        return sum(self.folders.values())

    @property
    def folders(self) -> Counter[str]:
        """All calls of each folder."""
        return Counter({folder: sum(functions.values()) for folder, functions in self.by_folder.items()})

    @property
    def functions(self) -> Counter[str]:
        """The calls of each function, in any folder."""
        counts = Counter[str]()
        for functions in self.by_folder.values():
            counts.update(functions)
        return counts

    def grown(self, since: "Calls", shown: int = 10) -> str:
        """A table of the functions that call, or are called, more often than before, the worst first."""
        before, now = since.functions, self.functions
        worst = sorted(before.keys() | now.keys(), key=lambda name: (before[name] - now[name], name))[:shown]
        rows = (
            f"{before[name]:7.2f} -> {now[name]:7.2f}  {name}" for name in worst if now[name] > before[name]
        )
        return "\n".join(rows)


def calls_of(profile: Profile, deliveries: int) -> Calls:
    """The calls that a profile counted during a number of deliveries."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    of_c: Counter[str] = Counter()
    for entry in profile.getstats():
        if isinstance(entry.code, CodeType):
            made = [each for each in entry.calls or () if not isinstance(each.code, CodeType)]
            calls = entry.callcount + sum(each.callcount for each in made)
            counts[_folder(entry.code)][entry.code.co_qualname] += calls
            of_c.subtract({str(each.code): each.callcount for each in made})
        else:
            of_c[str(entry.code)] += entry.callcount
    counts[LOOP] += of_c
    counts.pop(FOLDERS["angarium/bench/"], None)
    return Calls(
        {
            folder: {name: count / deliveries for name, count in functions.items() if count > 0}
            for folder, functions in counts.items()
        }
    )


@cache
def _folder(code: CodeType) -> str:
    source = source_of(code)
    return next((folder for beginning, folder in FOLDERS.items() if source.startswith(beginning)), LOOP)
