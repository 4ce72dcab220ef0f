"""Limits on the resources that all requests use together.

When NATS is slow or there are many clients, further requests are refused instead of being kept in memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from angarium.api.problems import unavailable

IN_FLIGHT_MAX = 1024
"""Requests that are being read or stored; JetStream acknowledges as many in 0.1 s."""
HELD_MAX = 64 << 20
"""Bytes of bodies that are held for them."""
TENANTS_MIN = 4
"""No tenant gets more than a quarter of either limit, so the slow connections of one keep out no other."""


class TenantUsage(Struct):
    """The requests of one tenant that are in flight, and the bytes that they hold."""

    requests: int = 0
    held: int = 0


class AdmittedRequest(Struct):
    """A request in flight, and the bytes that it holds."""

    tenant: TenantUsage
    held: int = 0


class RequestLimits:
    """The limits of requests in flight, and of the bytes that they hold."""

    def __init__(self, requests_max: int = IN_FLIGHT_MAX, bytes_max: int = HELD_MAX) -> None:
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self._tenants: dict[str, TenantUsage] = {}
        self.requests = 0
        self.held = 0

    @contextmanager
    def admit(self, tenant: str) -> Iterator[AdmittedRequest]:
        """Count a request while the block runs. Raises `ProblemRaised` if there are too many."""
        usage = self._tenants.get(tenant) or TenantUsage()
        if self.requests >= self._requests_max or usage.requests >= self._requests_max // TENANTS_MIN:
            raise unavailable("this process has too many requests in flight; send it again, more slowly")
        self._tenants[tenant] = usage
        request = AdmittedRequest(usage)
        self.requests += 1
        usage.requests += 1
        try:
            yield request
        finally:
            self.requests -= 1
            self.held -= request.held
            usage.requests -= 1
            usage.held -= request.held
            if not usage.requests:
                del self._tenants[tenant]

    def reserve(self, request: AdmittedRequest, size: int) -> None:
        """Let a request hold `size` more bytes. Raises `ProblemRaised` if that is too much."""
        usage = request.tenant
        if self.held + size > self._bytes_max or usage.held + size > self._bytes_max // TENANTS_MIN:
            raise unavailable("the requests in flight hold too much memory; send it again, more slowly")
        request.held += size
        usage.held += size
        self.held += size
