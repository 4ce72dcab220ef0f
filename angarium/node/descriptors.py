"""The limits on connections: what the limit on open files allows, and what the nodes of a machine share.

Open files are limited for each process. The ports of a machine, one for each connection to a host, are
limited for all its processes together.
"""

from angarium.delivery.connections.pool import DEFAULT_LIMITS

SPARE_COUNT = 256
"""Descriptors for everything else: NATS, the monitor, files, names that are being resolved."""

PORTS_TO_A_HOST = 24_576
"""Connections that a machine may have to one host at one address: most of the 28,232 ports that Linux uses by
default. Without a free port an attempt fails, and that would look like a failure of the receiver."""


def per_host_max(workers: int) -> int:
    """The connections to one host that each of several nodes on one machine may have."""
    return min(DEFAULT_LIMITS.per_host_max, PORTS_TO_A_HOST // workers)


def connections_max() -> int:
    """Raise the limit of the process (setrlimit(2)) as far as needed; returns the connections it allows."""
    most = DEFAULT_LIMITS.connections_max
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return most
    allowed, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return most
    wanted = most + SPARE_COUNT if hard == resource.RLIM_INFINITY else min(most + SPARE_COUNT, hard)
    while allowed < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            allowed = wanted
        except (ValueError, OSError):  # macOS has another limit below the hard one, reported elsewhere.
            wanted //= 2
    return max(1, min(most, allowed - SPARE_COUNT))
