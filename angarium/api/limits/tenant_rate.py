"""The rate of a tenant's requests of one kind, counted by each API process for itself."""

import asyncio

from angarium.api.limits.token_rates import TokenRates
from angarium.api.problems import Refusal


class TenantRate:
    """At most `per_s` requests a second of each tenant; `what` says in the plural what they are about."""

    def __init__(self, per_s: float, what: str) -> None:
        self.per_s = per_s
        self._what = what
        self._rates = TokenRates()

    def admit(self, tenant: str) -> None:
        """Count a request. Raises `Refusal` if there are too many."""
        standing = self._rates.take(tenant, self.per_s, 1, asyncio.get_running_loop().time())
        if not standing.admitted:
            detail = f"a tenant may have {self.per_s:g} {self._what} a second"
            raise Refusal(429, "rate", detail, retry_after=str(standing.wait_s))
