"""The limit on connections: as many as the limit on open files allows after it is raised."""

from angarium.delivery.connections.pool import DEFAULT_LIMITS

SPARE_COUNT = 256
"""Descriptors for everything else: NATS, the monitor, files, names that are being resolved."""


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
