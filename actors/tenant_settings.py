"""Settings of single tenants: weight and rate in the router, and how much of the streams they may fill."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, field

from actors.configuration.policy import AlertLimits, AlertSettings, Rate, alert_limits
from actors.ids import tenant_of
from actors.machine.bucket import RateLimit

ALL_OTHERS = "*"
"""Name of the settings for the tenants that have none of their own."""


class InstallationAlerts(AlertSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of alerts in the settings file, where an unknown one is a mistake."""


class TenantSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one tenant.

    - `weight`: number of copies that are sent in each turn of the tenant.
    - `rate`: the most events a second that are routed; None: no limit.
    - `backlog_max_bytes`, `dead_letters_max_bytes`: what may wait for its receivers, and what may lie among
      the dead letters; None: as much as there is room for.
    - `attempts_max`: attempts at its receivers that are under way on one node at a time; None: no limit.
    - `alerts`: limits of alerts about its receivers.
    """

    weight: Annotated[int, Meta(ge=1, le=100)] = 1
    rate: Rate | None = None
    backlog_max_bytes: Annotated[int, Meta(ge=1 << 20)] | None = None
    dead_letters_max_bytes: Annotated[int, Meta(ge=1 << 20)] | None = None
    attempts_max: Annotated[int, Meta(ge=1, le=16_384)] | None = None
    alerts: InstallationAlerts = InstallationAlerts()


USUAL = TenantSettings()


class SettingsByTenant(Struct, frozen=True):
    """The settings of each tenant, by its name; under `*` those of all others.

    `alerts`: limits of alerts about receivers, if neither their tenant nor they themselves have others.
    """

    by_name: Mapping[str, TenantSettings] = field(default_factory=dict)
    alerts: InstallationAlerts = InstallationAlerts()

    def for_tenant(self, tenant: str) -> TenantSettings:
        """The settings of a tenant."""
        return self.by_name.get(tenant) or self.for_all_others

    @property
    def for_all_others(self) -> TenantSettings:
        """The settings of the tenants that have none of their own."""
        return self.by_name.get(ALL_OTHERS) or USUAL

    def weight(self, tenant: str) -> int:
        """The number of copies in a turn of the tenant."""
        return self.for_tenant(tenant).weight

    def limit(self, tenant: str) -> RateLimit | None:
        """The limit of the tenant's events in the router; None if it has none."""
        rate = self.for_tenant(tenant).rate
        return None if rate is None else RateLimit(rate.per_second, rate.burst_max)

    def attempts_max(self, tenant: str) -> int | None:
        """The attempts of a tenant that are under way on one node at a time; None if it has no limit."""
        return self.for_tenant(tenant).attempts_max

    @property
    def has_budgets(self) -> bool:
        """True if the attempts of some tenant are limited."""
        return any(each.attempts_max is not None for each in self.by_name.values())

    def alert_limits(self, receiver: str, own: AlertSettings) -> AlertLimits:
        """The limits of alerts about a receiver, whose configuration may set its `own`."""
        return alert_limits(own, self.for_tenant(tenant_of(receiver)).alerts, self.alerts)

    @property
    def with_quota(self) -> list[str]:
        """The names of tenants that have a quota of their own, in order."""
        return sorted(name for name, each in self.by_name.items() if name != ALL_OTHERS and has_quota(each))


def has_quota(settings: TenantSettings) -> bool:
    """True if a tenant may fill a part of the streams only."""
    return settings.backlog_max_bytes is not None or settings.dead_letters_max_bytes is not None
