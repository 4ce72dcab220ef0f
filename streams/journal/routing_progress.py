"""The progress of routing: two values that only mean something together."""

from collections.abc import Mapping

from msgspec import Struct, UnsetType, field


class RoutingProgress(Struct, frozen=True, kw_only=True):
    """The progress of routing in a partition, as of one moment.

    - `routed`: all copies of the events up to here are stored, except those of parked tenants.
    - `parked_tenants`: each with the position of its first event whose copies are not all stored.
    """

    routed: int = 0
    parked_tenants: Mapping[str, int] = field(default_factory=dict)

    @property
    def needed_from(self) -> int:
        """The position of the first event that a router may still read."""
        return min([self.routed + 1, *self.parked_tenants.values()])

    def routed_of(self, tenant: str) -> int:
        """The position up to which all copies of the tenant's events are stored."""
        return min(self.routed, self.parked_tenants.get(tenant, self.routed + 1) - 1)

    def covers(self, tenant: str, position: int) -> bool:
        """True if all copies of the tenant's event at the position are stored."""
        return position <= self.routed_of(tenant)

    def raised_to(self, routed: int) -> "RoutingProgress":
        """The progress with a `routed` of at least this position."""
        if routed <= self.routed:
            return self
        return RoutingProgress(routed=routed, parked_tenants=self.parked_tenants)

    def limited_to(self, end: int) -> "RoutingProgress":
        """The progress in a stream whose events above the end are lost: new ones there are routed again."""
        parked = {tenant: min(position, end + 1) for tenant, position in self.parked_tenants.items()}
        return RoutingProgress(routed=min(self.routed, end), parked_tenants=parked)


NOTHING_ROUTED = RoutingProgress()


def recorded_progress(routed: int | UnsetType, parked_tenants: Mapping[str, int]) -> RoutingProgress | None:
    """The progress in a record; None if the record is from before version 3, which did not know it."""
    if isinstance(routed, UnsetType):
        return None
    return RoutingProgress(routed=routed, parked_tenants=parked_tenants)
