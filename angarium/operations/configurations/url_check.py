"""Checks a URL and the named profiles against the settings of nodes: says why they would not post to it."""

from ipaddress import ip_address, ip_network

from msgspec import Struct

from actors.configuration.policy import Policy
from actors.errors import InvalidPolicy
from angarium.delivery.connections.guard import denying_network, not_public
from angarium.delivery.http_exchange.target import InvalidTarget, parse_target
from angarium.settings import Settings


class UrlObjection(Struct, frozen=True):
    """A reason why nodes would not post to a URL; `with_flags` is for the command line."""

    text: str
    with_flags: str

    def __str__(self) -> str:
        return self.with_flags


def profile_notes(receiver: str, policy: Policy, settings: Settings) -> list[UrlObjection]:
    """The reasons why nodes with these settings would hold the receiver's events: profiles they lack."""
    found = []
    for why in settings.profiles.problems(receiver, policy):
        text = f"if nodes have the settings of this process, they send nothing: {why}"
        found.append(UrlObjection(text, with_flags=text))
    return found


def objections(url: str, settings: Settings) -> list[UrlObjection]:
    """The reasons why nodes with these settings would not post to the URL.

    Names are not resolved, since they may have other addresses where the nodes run.
    """
    try:
        target = parse_target(url)
    except InvalidTarget as error:
        raise InvalidPolicy([str(error)]) from None
    found = []
    if target.scheme != "https" and not settings.allow_http:
        text = "only nodes that may use http post to http://"
        found.append(
            UrlObjection(
                text, with_flags="only nodes with --allow-http post to http:// (angarium dev allows it)"
            )
        )
    try:
        address = ip_address("127.0.0.1" if target.host == "localhost" else target.host)
    except ValueError:
        return found
    if (network := denying_network(address, map(ip_network, settings.deny_networks))) is not None:
        text = f"nodes never connect to {target.host}: {network} is denied"
        return [*found, UrlObjection(text, with_flags=f"{text} (--deny-network)")]
    rule = not_public(address)
    networks = [ip_network(each) for each in settings.allow_networks]
    if rule is not None and not any(address in network for network in networks):
        dev = "; angarium dev allows it" if address.is_loopback else ""
        found.append(
            UrlObjection(
                f"only nodes that may connect to its network post to {target.host} ({rule})",
                with_flags=f"only nodes with --allow-network post to {target.host} ({rule}{dev})",
            )
        )
    return found
