"""The traces of events that were attempted and are not settled, by tenant, in a limited number of places.

They are kept by tenant, so that a tenant whose events all fail loses its own traces and not the others'.
"""

from msgspec import Struct

from angarium.telemetry.spans import Moment
from angarium.telemetry.trace_ids import TraceContext

TRACES_MAX = 16_384
"""Events whose traces are known, some 500 bytes each."""
TENANT_TRACES_MAX = TRACES_MAX // 8

Key = tuple[str, int]


class KnownTrace(Struct, frozen=True, gc=False):
    """The trace of an event, the URL of its last attempt, and what happened to it so far."""

    context: TraceContext
    url: str
    moments: list[Moment]


class KnownTraces:
    """Traces by receiver and sequence; `dropped` counts those that left their place to a newer one."""

    def __init__(self) -> None:
        self.dropped = 0
        self._by_tenant = dict[str, dict[Key, KnownTrace]]()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, key: Key) -> KnownTrace | None:
        """The trace of an event; None if there is none."""
        return self._by_tenant.get(_tenant(key), {}).get(key)

    def put(self, key: Key, trace: KnownTrace) -> None:
        """Keep a trace. A tenant beyond its share loses its oldest, or else the tenant that began first."""
        tenant = _tenant(key)
        known = self._by_tenant.get(tenant, {})
        if key not in known:
            if len(known) >= TENANT_TRACES_MAX:
                self._drop_oldest(known)
            elif self._count >= TRACES_MAX:
                self._drop_oldest(next(iter(self._by_tenant.values())))
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

    def _drop_oldest(self, traces: dict[Key, KnownTrace]) -> None:
        self.pop(next(iter(traces)))
        self.dropped += 1


def _tenant(key: Key) -> str:
    return key[0].partition(".")[0]
