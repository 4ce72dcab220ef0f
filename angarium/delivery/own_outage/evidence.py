"""The evidence for an outage of this node: which hosts it reached, and which it could not reach since.

A host is counted by the network of its address (/24, or /48 of IPv6), or by the last two labels of its name
if no address is known: names and addresses in one network are cheap to have. One connection to anything
beyond this machine, of any receiver, disproves an outage. Times are those of one clock.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator
from ipaddress import IPv4Address, ip_address, ip_network
from itertools import zip_longest

from msgspec import Struct

from angarium.delivery.http_exchange.target import Target

NETWORKS_MIN = 20
"""Networks that have to be unreachable."""
TENANTS_MIN = 3
"""Tenants whose receivers are there; all of them if there are fewer."""
EVIDENCE_WINDOW_S = 10.0
"""Time in which they have to fail."""
HOSTS_REMEMBERED_S = 3600.0
"""Time for which a host counts as one that this node sends to."""
HOSTS_OF_TENANT_MAX = 32
TENANTS_MAX = 256
"""Hosts of one tenant, and tenants, that are remembered; those tried last stay."""


class TriedHost(Struct, gc=False, kw_only=True):
    """A host that this node has tried: when it was reached, and when it was not, for the last time."""

    tenant: str
    target: Target
    network: str
    tried_at: float
    reached_at: float = -math.inf
    failed_at: float = -math.inf


class Evidence:
    """All that a node knows about whom it reaches.

    - `reached_at`: when it last reached any host.
    - `hosts_added`: how many hosts were ever added.
    """

    def __init__(self) -> None:
        self.reached_at = -math.inf
        self.hosts_added = 0
        self._tenants: OrderedDict[str, OrderedDict[str, TriedHost]] = OrderedDict()

    def reached(self, tenant: str, target: Target, address: str, now: float) -> None:
        """A connection was opened to this host, or it has answered."""
        self.reached_at = now
        self._host(tenant, target, address, now).reached_at = now

    def unreached(self, tenant: str, target: Target, address: str, now: float) -> None:
        """No connection was opened; `address` is empty if the name was not resolved."""
        self._host(tenant, target, address, now).failed_at = now

    def has_enough_networks(self, now: float) -> bool:
        """True if this node sends to so many networks that an outage could be told from their failures."""
        networks = set[str]()
        for each in self._recent(now):
            networks.add(each.network)
            if len(networks) >= NETWORKS_MIN:
                return True
        return False

    def shows_outage(self, now: float) -> bool:
        """True if enough networks of enough tenants failed within the window, and none was reached since."""
        failed = [each for each in self._recent(now) if self._is_failing(each, now)]
        tenants = {each.tenant for each in self._recent(now)}
        return (
            len({each.network for each in failed}) >= NETWORKS_MIN
            and len({each.tenant for each in failed}) >= min(TENANTS_MIN, len(tenants))
        )  # fmt: skip

    def witnesses(self, now: float) -> list[TriedHost]:
        """Hosts to probe, in order: each network once, and none that failed within the window."""
        failed = {each.network for each in self._recent(now) if self._is_failing(each, now)}
        return [each for each in self.in_turn(now) if each.network not in failed]

    def in_turn(self, now: float) -> list[TriedHost]:
        """All hosts, each network once. Tenants take turns, the one that reached a host last comes first.

        Of each tenant, the host that was reached last comes first.
        """
        by_tenant = dict[str, list[TriedHost]]()
        for each in sorted(self._recent(now), key=lambda host: (-host.reached_at, -host.tried_at)):
            by_tenant.setdefault(each.tenant, []).append(each)
        found = dict[str, TriedHost]()
        for turn in zip_longest(*by_tenant.values()):
            for host in turn:
                if host is not None:
                    found.setdefault(host.network, host)
        return list(found.values())

    def _is_failing(self, host: TriedHost, now: float) -> bool:
        return host.failed_at > self.reached_at and host.failed_at >= now - EVIDENCE_WINDOW_S

    def _recent(self, now: float) -> Iterator[TriedHost]:
        for hosts in self._tenants.values():
            for each in hosts.values():
                if each.tried_at >= now - HOSTS_REMEMBERED_S:
                    yield each

    def _host(self, tenant: str, target: Target, address: str, now: float) -> TriedHost:
        hosts = self._tenants.get(tenant)
        if hosts is None:
            while len(self._tenants) >= TENANTS_MAX:
                self._tenants.popitem(last=False)
            hosts = self._tenants[tenant] = OrderedDict()
        self._tenants.move_to_end(tenant)
        key = f"{target.host}:{target.port}"
        host = hosts.get(key)
        if host is None:
            while len(hosts) >= HOSTS_OF_TENANT_MAX:
                hosts.popitem(last=False)
            self.hosts_added += 1
            host = hosts[key] = TriedHost(
                tenant=tenant, target=target, network=network_of(target.host, address), tried_at=now
            )
        elif address:
            host.network = network_of(target.host, address)
        hosts.move_to_end(key)
        host.tried_at = now
        return host


def network_of(name: str, address: str) -> str:
    """The network by which a host is counted."""
    try:
        found = ip_address(address or name)
    except ValueError:
        return ".".join(name.rstrip(".").split(".")[-2:])
    bits = 24 if isinstance(found, IPv4Address) else 48
    return str(ip_network((int(found), found.max_prefixlen)).supernet(new_prefix=bits))


def is_this_machine(name: str, address: str) -> bool:
    """True for this machine itself, which is reached without any network."""
    try:
        return ip_address(address or name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
