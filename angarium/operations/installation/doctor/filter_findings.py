"""Receivers whose filter fails on most of their events, as `angarium doctor` names them.

Nodes count such failures, but only the node that routes a tenant does, and not by receiver. So the last
events are judged again here, of a few receivers.
"""

from collections import Counter

from actors.configuration.filters.judging import filter_of
from actors.configuration.parsing import parse
from actors.errors import InvalidPolicy
from angarium.operations.configurations.filter_trial import trial
from angarium.operations.installation.doctor.finding import Finding, warning
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Installation
from streams.nats.jetstream import JetStream

RECEIVERS_MAX = 50
"""Receivers with a filter that are checked, the first ones by name."""
EVENTS_TRIED = 20
EVENTS_MIN = 5
"""Events below which nothing is said about a filter."""


async def filter_findings(js: JetStream, installation: Installation) -> list[Finding]:
    """A line for each receiver whose filter fails on most events. Raises `Unavailable` and `ApiError`."""
    names, findings, checked = installation.names, list[Finding](), 0
    configurations = await StoredConfigurations(js, names).all()
    for receiver, stored in sorted(configurations.items()):
        if checked == RECEIVERS_MAX:
            break
        if b'"filter"' not in stored.raw:
            continue
        try:
            policy, _ = parse(stored.raw, strict=False)
        except InvalidPolicy:
            continue  # Another finding says so.
        if policy.filter is None:
            continue
        checked += 1
        tried = await trial(js, names, receiver, policy, filter_of(policy.filter), EVENTS_TRIED)
        if len(tried.events) >= EVENTS_MIN and tried.failed * 2 > len(tried.events):
            (why, _), *_ = Counter(each.why for each in tried.events if each.why).most_common(1)
            text = f"the filter of {receiver} fails on {tried.failed} of its last {len(tried.events)} events"
            command = f"angarium receiver test-filter {receiver}"
            findings.append(warning("filters", f"{text}: {why}", "correct it", command))
    return findings
