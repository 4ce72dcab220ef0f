"""The guard against requests into networks that are not public (SSRF): judges which addresses are reached.

It judges addresses, never spellings: a name is resolved here, every address of it is judged, and the
transport connects only to one of these. So a name that resolves differently a moment later (DNS rebinding)
gains nothing. A name with one public and one other address is refused as a whole, and so is a name with more
addresses than are checked. A network that the operator denies is refused even if it is public or allowed.

Not public are IANA's special-purpose registries (RFC 6890 and its updates), the transition mechanisms that
carry an IPv4 address inside an IPv6 one, and the metadata services of clouds that use a public address.
"""

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from weakref import WeakValueDictionary

from msgspec import Struct

from angarium.delivery.connections.resolver import ADDRESSES_MAX, DnsResolver, Resolved, Resolver
from angarium.delivery.http_exchange.target import Target
from angarium.delivery.http_exchange.transport import one_line

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

VERDICT_KEPT_MIN_S = 1.0
"""Shortest time that a verdict on a name is kept, so that a TTL of 0 costs one look-up a second."""
VERDICT_KEPT_MAX_S = 300.0
"""Longest time that a verdict on a name is kept; beyond the shortest time, never longer than its TTL."""
NAMES_MAX = 16_384

LOOKUPS_MAX = 64
"""Names of one tenant that are looked up at once; its other names wait, those of other tenants do not."""
LOOKUP_COUNTS_FOR_S = 1.0
"""Longest time that a look-up counts towards that limit: later it waits for silent servers, at no cost."""

_SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), rule)
    for network, rule in (
        ("0.0.0.0/8", "this network, RFC 791"),
        ("10.0.0.0/8", "private, RFC 1918"),
        ("100.64.0.0/10", "shared address space, RFC 6598"),
        ("127.0.0.0/8", "loopback, RFC 1122"),
        ("168.63.129.16/32", "platform services of Azure"),
        ("169.254.0.0/16", "link-local and cloud metadata, RFC 3927"),
        ("172.16.0.0/12", "private, RFC 1918"),
        ("192.0.0.0/24", "protocol assignments, RFC 6890"),
        ("192.0.2.0/24", "documentation, RFC 5737"),
        ("192.88.99.0/24", "6to4 relays, RFC 7526"),
        ("192.168.0.0/16", "private, RFC 1918"),
        ("198.18.0.0/15", "benchmarking, RFC 2544"),
        ("198.51.100.0/24", "documentation, RFC 5737"),
        ("203.0.113.0/24", "documentation, RFC 5737"),
        ("224.0.0.0/4", "multicast, RFC 5771"),
        ("255.255.255.255/32", "broadcast, RFC 919"),
        ("240.0.0.0/4", "reserved, RFC 1112"),
        ("::/128", "unspecified, RFC 4291"),
        ("::1/128", "loopback, RFC 4291"),
        ("::/96", "IPv4-compatible, RFC 4291"),
        ("::ffff:0:0/96", "IPv4-mapped, RFC 4291"),
        ("::ffff:0:0:0/96", "IPv4-translated, RFC 7915"),
        ("64:ff9b:1::/48", "local NAT64, RFC 8215"),
        ("100::/64", "discard-only, RFC 6666"),
        ("2001::/23", "protocol assignments and Teredo, RFC 2928"),
        ("2001:db8::/32", "documentation, RFC 3849"),
        ("2002::/16", "6to4, RFC 7526"),
        ("3fff::/20", "documentation, RFC 9637"),
        ("5f00::/16", "segment routing, RFC 9602"),
        ("fc00::/7", "unique local, RFC 4193"),
        ("fe80::/10", "link-local, RFC 4291"),
        ("fec0::/10", "site-local, RFC 3879"),
        ("ff00::/8", "multicast, RFC 4291"),
    )
)
# Bits, not objects: an answer may have many addresses, and each is compared with all of these on the loop.
_NOT_PUBLIC = {
    version: [
        (int(network.network_address), int(network.netmask), rule)
        for network, rule in _SPECIAL
        if network.version == version
    ]
    for version in (4, 6)
}
_NAT64 = IPv6Network("64:ff9b::/96")
_CARRIERS = tuple(
    (IPv6Network(network), shift, flipped)
    for network, shift, flipped in (
        ("64:ff9b::/96", 0, False),
        ("64:ff9b:1::/48", 0, False),
        ("::/96", 0, False),
        ("::ffff:0:0/96", 0, False),
        ("::ffff:0:0:0/96", 0, False),
        ("2002::/16", 80, False),
        ("2001::/32", 0, True),
    )
)
"""Positions of an IPv4 address in an IPv6 one: bits from the end, and whether they are flipped (Teredo)."""
_IPV4 = 0xFFFFFFFF
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_SPLIT_FROM_END = (40, 32, 24)
"""Positions of a split IPv4 address (RFC 6052, after 48, 56 and 64 bits), without the middle octet."""
_ISATAP = 0x5EFE
_MAPPED = IPv6Network("::ffff:0:0/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")


class Allowed(Struct, frozen=True):
    """The verdict that these addresses may be connected to, and no others."""

    addresses: tuple[str, ...]


class Blocked(Struct, frozen=True):
    """The verdict not to connect: `rule` gives the reason in a few words, `detail` in a sentence."""

    rule: str
    detail: str


class Unresolved(Struct, frozen=True):
    """The verdict that the name has no address, or no server could be asked."""

    detail: str


AddressVerdict = Allowed | Blocked | Unresolved

_HTTP_REFUSED = Blocked(
    "https only", "http is refused; use https, or ask the operator to allow it (setting allow_http)"
)


def not_public(address: Address) -> str | None:
    """The rule by which an address is not public; None if it is public."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        # NAT64, by which an IPv6-only network reaches the IPv4 internet: the IPv4 address in it counts.
        rule = not_public(IPv4Address(int(address) & 0xFFFFFFFF))
        return f"NAT64, RFC 6052, of {rule}" if rule else None
    number = int(address)
    for network, mask, rule in _NOT_PUBLIC[address.version]:
        if number & mask == network:
            return rule
    if isinstance(address, IPv4Address):
        return None
    if address not in _GLOBAL_UNICAST:
        return "outside of global unicast, RFC 4291"
    if _is_isatap(number):
        rule = not_public(IPv4Address(number & _IPV4))
        return f"ISATAP, RFC 5214, of {rule}" if rule else None
    return None


def denying_network(address: Address, networks: Iterable[Network]) -> Network | None:
    """The first of these networks that contains the address, or an IPv4 address that it carries."""
    places = (address, *_carried(address))
    return next((each for each in networks if any(place in _plain(each) for place in places)), None)


@cache
def _plain(network: Network) -> Network:
    """The IPv4 network of an IPv4-mapped one, since no host has an address in the mapped form."""
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return IPv4Network((int(network.network_address) & _IPV4, network.prefixlen - 96))
    return network


def _carried(address: Address) -> list[IPv4Address]:
    """The IPv4 addresses in an IPv6 address: there may be several readings."""
    if isinstance(address, IPv4Address):
        return []
    number = int(address)
    found = [
        (number >> shift & _IPV4) ^ (_IPV4 if flipped else 0)
        for network, shift, flipped in _CARRIERS
        if address in network
    ]
    if address in _LOCAL_NAT64:
        joined = number >> 64 << 56 | number & (1 << 56) - 1
        found += [joined >> shift & _IPV4 for shift in _SPLIT_FROM_END]
    if _is_isatap(number):
        found.append(number & _IPV4)
    return [IPv4Address(each) for each in found]


def _is_isatap(number: int) -> bool:
    """True if the last 64 bits tunnel to an IPv4 address (RFC 5214): any prefix, one bit may be set."""
    return number >> 32 & 0xFDFFFFFF == _ISATAP


class Guard:
    """Judges targets. `allow_http` and `allow_networks` allow exactly what they name.

    `deny_networks` overrides both, and public addresses, too.
    """

    def __init__(
        self,
        allow_http: bool = False,
        allow_networks: Iterable[Network] = (),
        deny_networks: Iterable[Network] = (),
        *,
        resolver: Resolver | None = None,
    ) -> None:
        self._allow_http = allow_http
        self._allow_networks = tuple(allow_networks)
        self._deny_networks = tuple(deny_networks)
        self._resolver = resolver or DnsResolver()
        self._verdicts: dict[str, tuple[AddressVerdict, float]] = {}
        self._lookups: dict[tuple[str, str], asyncio.Task[AddressVerdict]] = {}
        self._lookup_slots: WeakValueDictionary[str, asyncio.BoundedSemaphore] = WeakValueDictionary()

    def known_verdict(self, target: Target, now: float) -> AddressVerdict | None:
        """The verdict, if no question to a server is needed. `now` is the time of the loop."""
        if target.scheme != "https" and not self._allow_http:
            return _HTTP_REFUSED
        verdict, until = self._verdicts.get(target.host, (None, 0.0))
        return verdict if now < until else None

    def verdict_by_spelling(self, target: Target) -> AddressVerdict:
        """The verdict on a target whose name is not resolved here; the name stands for its address."""
        if target.scheme != "https" and not self._allow_http:
            return _HTTP_REFUSED
        if _literal(target.host) is None:
            return Allowed((target.host,))
        return self._check(target.host, (target.host,))

    async def check(self, target: Target, tenant: str = "") -> AddressVerdict:
        """The verdict; resolves an unknown name, in the tenant's turn.

        The caller bounds the time.
        """
        known = self.known_verdict(target, asyncio.get_running_loop().time())
        if known is not None:
            return known
        key = (tenant, target.host)
        lookup = self._lookups.get(key)
        if lookup is None:
            # It has its own task: a tenant's receivers that wait for one name share it, and none cancels it.
            lookup = asyncio.create_task(self._look_up(target.host, tenant))
            self._lookups[key] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(key, None))
        return await asyncio.shield(lookup)

    async def _resolve(self, host: str, tenant: str) -> Resolved:
        slots = self._lookup_slots.get(tenant)
        if slots is None:
            slots = self._lookup_slots[tenant] = asyncio.BoundedSemaphore(LOOKUPS_MAX)
        await slots.acquire()
        over = ExitStack()
        over.callback(slots.release)
        later = asyncio.get_running_loop().call_later(LOOKUP_COUNTS_FOR_S, over.close)
        try:
            return await self._resolver.resolve(host)
        finally:
            later.cancel()
            over.close()

    async def _look_up(self, host: str, tenant: str) -> AddressVerdict:
        try:
            resolved = _literal(host) or await self._resolve(host, tenant)
        except OSError as error:
            return Unresolved(one_line(f"{host} was not resolved: {error}"))
        verdict = self._check(host, resolved.addresses)
        while len(self._verdicts) >= NAMES_MAX:
            del self._verdicts[next(iter(self._verdicts))]
        self._verdicts.pop(host, None)
        valid_s = max(VERDICT_KEPT_MIN_S, min(resolved.valid_s, VERDICT_KEPT_MAX_S))
        until = asyncio.get_running_loop().time() + valid_s
        self._verdicts[host] = (verdict, until)
        return verdict

    def _check(self, host: str, addresses: tuple[str, ...]) -> AddressVerdict:
        if len(addresses) > ADDRESSES_MAX:
            detail = f"{host} has more than {ADDRESSES_MAX} addresses, which is too many to check"
            return Blocked("too many addresses", detail)
        for text in addresses:
            address = ip_address(text)
            label = host if text == host else f"{host} has the address {text}, which"
            if self._deny_networks and (network := denying_network(address, self._deny_networks)) is not None:
                detail = f"{label} is in {network}: the operator denies it (setting deny_networks)"
                return Blocked(f"denied, {network}", detail)
            rule = not_public(address)
            if rule is not None and not any(address in network for network in self._allow_networks):
                detail = f"{label} is not public ({rule}); the operator can allow it (setting allow_networks)"
                return Blocked(rule, detail)
        return Allowed(addresses) if addresses else Unresolved(f"{host} has no address")


class SpellingGuard:
    """A guard for targets whose names a proxy resolves: it judges http, and the addresses in URLs.

    What a name leads to is judged by the proxy, which alone knows its addresses.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def known_verdict(self, target: Target, now: float) -> AddressVerdict | None:
        """The verdict: no question to a server is ever needed."""
        return self._guard.verdict_by_spelling(target)

    async def check(self, target: Target, tenant: str = "") -> AddressVerdict:
        """See `known_verdict`."""
        return self._guard.verdict_by_spelling(target)


def _literal(host: str) -> Resolved | None:
    """The address itself, if the host is one; None for a name."""
    try:
        ip_address(host)
    except ValueError:
        return None
    return Resolved((host,), VERDICT_KEPT_MAX_S)
