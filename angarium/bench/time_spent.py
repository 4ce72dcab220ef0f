"""Where a node's time went, in text, from what cProfile recorded of it.

A profiled node is slower, and Python's own calls weigh more in it than what runs in C: read who calls whom
and how often, and take the figures from a run without a profile.
"""

import io
import pstats
from pathlib import Path

SHOWN = 40
PYTHON = ("-m", "cProfile", "-o")
"""What stands before the node's own command; the file follows."""


def time_spent(recorded: Path) -> str:
    """The functions with the most time of their own, and those with the most below them."""
    text = io.StringIO()
    statistics = pstats.Stats(str(recorded), stream=text).strip_dirs()
    for order, title in (("tottime", "time of its own"), ("cumulative", "with all that it calls")):
        text.write(f"{title}\n")
        statistics.sort_stats(order).print_stats(SHOWN)
    return text.getvalue()
