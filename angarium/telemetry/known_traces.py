"""The traces of events that were attempted and are not settled, by tenant, in a limited number of places.

They are kept by tenant, so that a tenant whose events all fail loses its own traces and not the others'.
"""

from collections.abc import Callable

from msgspec import Struct

from actors.ids import tenant_of
from angarium.telemetry.spans import Moment, SpanName
from angarium.telemetry.trace_ids import TraceContext

TRACES_MAX = 16_384
"""Events whose traces are known, some 500 bytes each."""
TENANT_TRACES_MAX = TRACES_MAX // 8

Key = tuple[str, int]


class KnownTrace(Struct, frozen=True, gc=False):
    """The trace of an event, the URL of its last attempt, and what happened to it so far.

    `posts`: the POSTs of batches that contained it, the last one at the end; none without batches.
    """

    context: TraceContext
    url: str
    moments: list[Moment]
    posts: tuple[SpanName, ...] = ()


class KnownTraces:
    """Traces by receiver and sequence; `dropped` counts those that left their place to a newer one."""

    def __init__(self) -> None:
        self.dropped = 0
        self._by_tenant = dict[str, dict[Key, KnownTrace]]()
        self._count = 0
        self._largest: dict[Key, KnownTrace] = {}

    def __len__(self) -> int:
        return self._count

    def get(self, key: Key) -> KnownTrace | None:
        """The trace of an event; None if there is none."""
        return self._by_tenant.get(_tenant(key), {}).get(key)

    def put(self, key: Key, trace: KnownTrace) -> None:
        """Keep a trace. A tenant beyond its share loses its oldest, or else the tenant with the most."""
        tenant = _tenant(key)
        known = self._by_tenant.get(tenant, {})
        if key not in known:
            if len(known) >= TENANT_TRACES_MAX:
                self._drop_oldest(known)
            elif self._count >= TRACES_MAX:
                self._drop_oldest(self._largest_or_equal(known))
            self._count += 1
        self._by_tenant.setdefault(tenant, {})[key] = trace

    def pop(self, key: Key) -> KnownTrace | None:
        """Forget the trace of an event, and return it; None if there is none."""
        tenant = _tenant(key)
        traces = self._by_tenant.get(tenant, {})
        trace = traces.pop(key, None)
        if trace is not None:
            self._count -= 1
            if not traces:
                del self._by_tenant[tenant]
        return trace

    def forget_receiver(self, receiver: str, below: int) -> None:
        """Forget the traces of its events with numbers below this one."""
        known = self._by_tenant.get(tenant_of(receiver), {})
        for key in [key for key in known if key[0] == receiver and key[1] < below]:
            self.pop(key)

    def forget_receivers(self, gone: Callable[[str], bool]) -> None:
        """Forget all traces of these receivers."""
        keys = [key for known in self._by_tenant.values() for key in known]
        receivers = set(filter(gone, {receiver for receiver, _ in keys}))
        for key in keys:
            if key[0] in receivers:
                self.pop(key)

    def _largest_or_equal(self, known: dict[Key, KnownTrace]) -> dict[Key, KnownTrace]:
        """The traces of a tenant that has at least as many as are `known` of another.

        It is nearly always the one that was found last: to look at all tenants each time takes too long.
        """
        if len(known) >= len(self._largest):
            self._largest = known or max(self._by_tenant.values(), key=len)
        return self._largest

    def _drop_oldest(self, traces: dict[Key, KnownTrace]) -> None:
        self.pop(next(iter(traces)))
        self.dropped += 1


def _tenant(key: Key) -> str:
    return tenant_of(key[0])
