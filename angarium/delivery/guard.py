"""Which addresses may be connected to: the guard against requests into networks that are not public (SSRF).

It judges addresses, never spellings: a name is resolved here, every address that it has is judged, and the
transport connects to one of these and to nothing else. So a name that resolves differently a moment later
(rebinding) finds no gap. A name with one public and one other address is refused whole.

What is not public is IANA's special-purpose registries (RFC 6890 and its updates), the transition mechanisms
that carry an IPv4 address inside an IPv6 one, and the metadata services of clouds that use a public address.
"""

import asyncio
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from msgspec import Struct

from angarium.delivery.resolver import DnsResolver, Resolved, Resolver
from angarium.delivery.target import Target
from angarium.delivery.transport import one_line

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

KEPT_MAX_S = 300.0
"""The longest that a verdict on a name is kept; never longer than the addresses are valid."""
NAMES_MAX = 16_384

_NOT_PUBLIC: tuple[tuple[Network, str], ...] = tuple(
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
_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")


class Allowed(Struct, frozen=True):
    """These addresses, and no others, may be connected to."""

    addresses: tuple[str, ...]


class Refused(Struct, frozen=True):
    """Not to be connected to. `rule` says why in a few words, `detail` is the sentence for people."""

    rule: str
    detail: str


class Unresolved(Struct, frozen=True):
    """The name has no address, or nobody could be asked."""

    detail: str


Verdict = Allowed | Refused | Unresolved

_HTTP_REFUSED = Refused("https only", "http is refused; use https, or the operator allows it (--allow-http)")


def not_public(address: Address) -> str | None:
    """The rule by which an address is not public; None where it is."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        # The network's way to the IPv4 internet, where IPv6 is all there is: what counts is whom it leads to.
        rule = not_public(IPv4Address(int(address) & 0xFFFFFFFF))
        return f"NAT64, RFC 6052, of {rule}" if rule else None
    for network, rule in _NOT_PUBLIC:
        if address in network:
            return rule
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "outside of global unicast, RFC 4291"
    return None


class Guard:
    """Judges targets. `allow_http` and `allow_networks` open exactly what they say."""

    def __init__(
        self,
        allow_http: bool = False,
        allow_networks: Iterable[Network] = (),
        *,
        resolver: Resolver | None = None,
    ) -> None:
        self._allow_http = allow_http
        self._allow_networks = tuple(allow_networks)
        self._resolver = resolver or DnsResolver()
        self._verdicts: dict[str, tuple[Verdict, float]] = {}
        self._lookups: dict[str, asyncio.Task[Verdict]] = {}

    def known(self, target: Target, now: float) -> Verdict | None:
        """The verdict, if it can be had without asking anybody. `now` is the time of the loop."""
        if target.scheme != "https" and not self._allow_http:
            return _HTTP_REFUSED
        verdict, until = self._verdicts.get(target.host, (None, 0.0))
        return verdict if now < until else None

    async def judge(self, target: Target) -> Verdict:
        """The verdict; resolves the name where it is not known. The caller bounds the time."""
        known = self.known(target, asyncio.get_running_loop().time())
        if known is not None:
            return known
        lookup = self._lookups.get(target.host)
        if lookup is None:
            # A task of its own: all who wait for one name share it, and none ends it by giving up.
            lookup = asyncio.create_task(self._look_up(target.host))
            self._lookups[target.host] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(target.host, None))
        return await asyncio.shield(lookup)

    async def _look_up(self, host: str) -> Verdict:
        try:
            resolved = _literal(host) or await self._resolver.resolve(host)
        except OSError as error:
            return Unresolved(one_line(f"{host} was not resolved: {error}"))
        verdict = self._judge(host, resolved.addresses)
        while len(self._verdicts) >= NAMES_MAX:
            del self._verdicts[next(iter(self._verdicts))]
        self._verdicts.pop(host, None)
        until = asyncio.get_running_loop().time() + min(resolved.valid_s, KEPT_MAX_S)
        self._verdicts[host] = (verdict, until)
        return verdict

    def _judge(self, host: str, addresses: tuple[str, ...]) -> Verdict:
        for text in addresses:
            address = ip_address(text)
            rule = not_public(address)
            if rule is not None and not any(address in network for network in self._allow_networks):
                who = host if text == host else f"{host} has the address {text}, which"
                detail = f"{who} is not public ({rule}); the operator can allow it (--allow-network)"
                return Refused(rule, detail)
        return Allowed(addresses) if addresses else Unresolved(f"{host} has no address")


def _literal(host: str) -> Resolved | None:
    """An address stands for itself, for ever; None: a name."""
    try:
        ip_address(host)
    except ValueError:
        return None
    return Resolved((host,), KEPT_MAX_S)
