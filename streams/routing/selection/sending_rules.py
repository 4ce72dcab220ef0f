"""The rules by which receivers get a part of the events that they subscribe to: their regions and filters.

Few receivers have any, and most tenants have none such receiver, so both are asked for quickly.
"""

from collections.abc import Mapping

from msgspec import Struct

from actors.configuration.filters.evaluating import Filter, filter_of
from actors.configuration.policy import Policy, is_admitted
from actors.ids import tenant_of
from streams.buckets.known_configurations import KnownConfigurations

_NONE: Mapping[str, "SendingRule"] = {}


class SendingRule(Struct, frozen=True):
    """The rule of one receiver. `regions`: none means all."""

    regions: tuple[str, ...]
    filter: Filter | None

    def admits(self, region: str) -> bool:
        """True if events of that region may be sent."""
        return is_admitted(region, self.regions)


class SendingRules:
    """The rules of all receivers of an installation that have one."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, SendingRule]] = {}

    def put(self, receiver: str, policy: Policy | None) -> None:
        """Let the receiver `<tenant>.<name>` have the rule of its configuration, and no other."""
        tenant = tenant_of(receiver)
        if policy is not None and (policy.region or policy.filter is not None):
            wanted = None if policy.filter is None else filter_of(policy.filter)
            self._tenants.setdefault(tenant, {})[receiver] = SendingRule(policy.region, wanted)
        elif (rules := self._tenants.get(tenant)) is not None:
            rules.pop(receiver, None)
            if not rules:
                del self._tenants[tenant]

    def by_receiver(self, tenant: str) -> Mapping[str, SendingRule]:
        """The rules of the tenant's receivers that have one."""
        return self._tenants.get(tenant, _NONE)


def sending_rules_of(configurations: KnownConfigurations) -> SendingRules:
    """The rules of the receivers, kept up to date from now on, together with their subscriptions."""
    rules = SendingRules()
    configurations.on_change(lambda receiver: rules.put(receiver, configurations.subscriber(receiver)))
    return rules
