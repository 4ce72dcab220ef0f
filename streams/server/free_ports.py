"""Draws free ports, for processes that cannot choose one themselves.

The system takes the ports of its own choice, for a connection or when a process asks for port 0, from a range
of 32768 and more (ip(7), `ip_local_port_range`). A port below that range stays free until it is used,
even if many processes draw one at the same time.
"""

import random
import socket
from itertools import islice

_DRAW = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Draw free ports of 127.0.0.1, no two of them the same, that the system gives to no other process."""
    drawn = iter(_DRAW.sample(range(10_000, 32_000), 2_000))
    return list(islice(filter(_is_free, drawn), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
