"""Turns of tenants: one request to erase each, so that a tenant with many requests delays no other."""

from collections.abc import Sequence

from streams.erasing.erasures import Erasure


class ErasureTurns:
    """The requests that were tried last, by tenant. A request is known by its revision, which grows."""

    def __init__(self) -> None:
        self._tried: dict[str, int] = {}

    def take(self, pending: Sequence[tuple[Erasure, int]]) -> tuple[list[tuple[Erasure, int]], bool]:
        """Take the next request of each tenant; True if a tenant has requests after it.

        `pending` is in the order of revisions. A tenant's requests come in this order, and then from the
        first one again.
        """
        of_tenant: dict[str, list[tuple[Erasure, int]]] = {}
        for each in pending:
            of_tenant.setdefault(each[0].tenant, []).append(each)
        turns, more = [], False
        for tenant, requests in of_tenant.items():
            after = [each for each in requests if each[1] > self._tried.get(tenant, 0)]
            turns.append((after or requests)[0])
            more = more or len(after or requests) > 1
        self._tried = {erasure.tenant: revision for erasure, revision in turns}
        return turns, more
