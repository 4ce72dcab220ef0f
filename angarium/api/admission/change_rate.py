"""The rate of a tenant's changes of receivers, counted by each API process for itself.

Each node reads every change, and keeps the name of a removed receiver for good. Only what is about to be
stored counts, so what is invalid gets its own answer.
"""

import asyncio

from actors.ids import tenant_of
from angarium.api.admission.request_rates import RequestRates
from angarium.api.problems import ProblemRaised
from angarium.operations.failures import OperationError

CHANGES_PER_S = 50.0
CHANGES_CODE = "change_rate"
"""The code of the failure of an operation that would store one change too many."""


class ChangeRate:
    """At most `per_s` changes a second of each tenant."""

    def __init__(self, per_s: float = CHANGES_PER_S) -> None:
        self.per_s = per_s
        self._rates = RequestRates()

    def admit(self, receiver: str) -> None:
        """Count a change that is about to be stored. Raises `OperationError` if there are too many."""
        standing = self._rates.take(tenant_of(receiver), self.per_s, 1, asyncio.get_running_loop().time())
        if not standing.admitted:
            raise OperationError(
                "refused", f"a tenant may have {self.per_s:g} changes of receivers a second", CHANGES_CODE
            )

    def problem(self, receiver: str, why: str) -> ProblemRaised:
        """The answer to a change that was not admitted, with what is left."""
        standing = self._rates.take(tenant_of(receiver), self.per_s, 0, asyncio.get_running_loop().time())
        raised = ProblemRaised(429, "rate", why, retry_after=str(standing.next_s))
        raised.headers |= standing.headers("tenant")
        return raised
