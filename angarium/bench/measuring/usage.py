"""CPU and memory that a process has used so far, where the system shows it (Linux)."""

import os
from pathlib import Path

from msgspec import Struct


class Usage(Struct, frozen=True):
    """CPU time in seconds, of user and system; memory that is resident, in megabytes."""

    cpu_s: float
    memory_mb: float


def usage(pid: int | None) -> Usage | None:
    """The usage from /proc (proc(5)); None if there is none, or no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


def cpu_us_each(start: Usage | None, end: Usage | None, count: int) -> float | None:
    """The CPU time of one of them, in microseconds; None if the system does not show it."""
    return None if start is None or end is None else (end.cpu_s - start.cpu_s) / count * 1e6
