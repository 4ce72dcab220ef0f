"""A count of calls: `python -m angarium.bench.measuring.counting FILE -m MODULE ARGUMENTS…`

It counts from SIGUSR1 to SIGUSR2, and then writes its file. On a shared machine rates and CPU differ by a
tenth from one run to the next, and calls a delivery by a hundredth: what a change costs is seen at once, and
where. How long the calls take is not (`angarium.bench.measuring.sampling` tells that).
"""

import os
import runpy
import signal
import sys
from collections import Counter
from cProfile import Profile
from pathlib import Path
from types import CodeType

import msgspec
from msgspec import Struct

PYTHON = ("-m", "angarium.bench.measuring.counting")
"""The words before a node's own command; the file follows."""
BEGIN, END = signal.SIGUSR1, signal.SIGUSR2


class Calls(Struct, frozen=True):
    """Calls per delivery, by the qualified name of the function; calls into C count for the caller.

    Names without their module: moving a function changes nothing here.
    """

    by_function: dict[str, float]

    @property
    def whole(self) -> float:
        """All calls for one delivery."""
        return sum(self.by_function.values())

    def grown(self, since: "Calls", shown: int = 10) -> str:
        """A table of the functions that call, or are called, more often than before, the worst first."""
        names = self.by_function.keys() | since.by_function.keys()
        before, now = Counter(since.by_function), Counter(self.by_function)
        worst = sorted(names, key=lambda name: (before[name] - now[name], name))[:shown]
        rows = (
            f"{before[name]:7.2f} -> {now[name]:7.2f}  {name}" for name in worst if now[name] > before[name]
        )
        return "\n".join(rows)


def recorded(file: Path, deliveries: int) -> Calls:
    """Reads what was counted while there were so many deliveries."""
    counts = msgspec.json.decode(file.read_bytes(), type=dict[str, int])
    return Calls({name: count / deliveries for name, count in counts.items()})


def counts_of(profile: Profile) -> Counter[str]:
    """The calls of each function, and those that it makes into C; the others into C are the event loop's."""
    counts: Counter[str] = Counter()
    of_c: Counter[str] = Counter()
    for entry in profile.getstats():
        if isinstance(entry.code, CodeType):
            made = [each for each in entry.calls or () if not isinstance(each.code, CodeType)]
            counts[entry.code.co_qualname] += entry.callcount + sum(each.callcount for each in made)
            of_c.subtract({str(each.code): each.callcount for each in made})
        else:
            of_c[str(entry.code)] += entry.callcount
    return counts + of_c


def _write(profile: Profile, file: Path) -> None:
    profile.disable()
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(msgspec.json.encode(counts_of(profile)))
    os.replace(unfinished, file)


def main() -> None:
    """Run a module as `python -m` does, and count while it is told to."""
    file, module, *arguments = sys.argv[1], sys.argv[3], *sys.argv[4:]
    profile = Profile()
    signal.signal(BEGIN, lambda *_: profile.enable())
    signal.signal(END, lambda *_: _write(profile, Path(file)))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
