"""Checks the filters of receivers: names those that fail on most of their last events.

Nodes count such failures, but only the node that routes a tenant does, and not by receiver. So the last
events are evaluated again here, of a few receivers.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby, islice

from actors.configuration.filters.evaluating import filter_of
from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.errors import InvalidPolicy
from actors.ids import tenant_of
from actors.machine.event import Event
from angarium.operations.configurations.trials.filter_trial import count_failed, subscribes, tried_events
from angarium.operations.installation.doctor.findings import Finding, warning
from streams.buckets.stored_configurations import Configuration, StoredConfigurations
from streams.installation.topology import Installation
from streams.nats.jetstream import JetStream
from streams.observation.newest_events import newest_events

RECEIVERS_MAX = 50
"""Receivers with a filter that are checked, the first ones by name."""
EVENTS_TRIED = 20
EVENTS_MIN = 5
"""Events below which nothing is said about a filter."""


async def check_filters(js: JetStream, installation: Installation) -> list[Finding]:
    """Find the receivers whose filter fails on most events. Raises `Unavailable` and `ApiError`."""
    names, findings = installation.names, list[Finding]()
    configurations = await StoredConfigurations(js, names).all()
    checked = islice(_with_filters(configurations), RECEIVERS_MAX)
    for tenant, of_tenant in groupby(checked, lambda each: tenant_of(each[0])):
        policies = dict(of_tenant)
        # The events of a tenant are read once for all its receivers.
        found = await newest_events(
            js, names, tenant, EVENTS_TRIED * len(policies), partial(_any_subscribes, policies)
        )
        for receiver, policy in policies.items():
            mine = [each for each in found.events if subscribes(receiver, policy, each)][-EVENTS_TRIED:]
            tried = await tried_events(mine, policy, filter_of(policy.filter or ""))
            failed = count_failed(tried)
            if len(tried) >= EVENTS_MIN and failed * 2 > len(tried):
                (why, _), *_ = Counter(each.why for each in tried if each.why).most_common(1)
                text = f"the filter of {receiver} fails on {failed} of its last {len(tried)} events: {why}"
                command = f"angarium receiver test-filter {receiver}"
                findings.append(warning("filters", text, "correct the filter", command))
    return findings


def _with_filters(configurations: Mapping[str, Configuration]) -> Iterator[tuple[str, Policy]]:
    """Yields the receivers with a filter, by name."""
    for receiver, stored in sorted(configurations.items()):
        if b'"filter"' not in stored.raw:
            continue
        try:
            policy, _ = parse(stored.raw, strict=False)
        except InvalidPolicy:
            continue  # Another finding says so.
        if policy.filter is not None:
            yield receiver, policy


def _any_subscribes(policies: Mapping[str, Policy], event: Event) -> bool:
    return any(subscribes(receiver, policy, event) for receiver, policy in policies.items())
