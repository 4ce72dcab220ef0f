"""Checks a URL against the settings of nodes: says why they would not post to it."""

from ipaddress import ip_address, ip_network

from actors.errors import InvalidPolicy
from angarium.delivery.connections.guard import denying, not_public
from angarium.delivery.exchange.target import InvalidTarget, parse_target
from angarium.settings import Settings


def objections(url: str, settings: Settings) -> list[str]:
    """The reasons why nodes with these settings would not post to the URL.

    Names are not resolved, since they may have other addresses where the nodes run.
    """
    try:
        target = parse_target(url)
    except InvalidTarget as error:
        raise InvalidPolicy([str(error)]) from None
    found = []
    if target.scheme != "https" and not settings.allow_http:
        found.append("only nodes with --allow-http post to http:// (angarium dev allows it)")
    try:
        address = ip_address("127.0.0.1" if target.host == "localhost" else target.host)
    except ValueError:
        return found
    if (network := denying(address, map(ip_network, settings.deny_networks))) is not None:
        return [*found, f"nodes never connect to {target.host}: {network} is denied (--deny-network)"]
    rule = not_public(address)
    networks = [ip_network(each) for each in settings.allow_networks]
    if rule is not None and not any(address in network for network in networks):
        found.append(
            f"only nodes with --allow-network post to {target.host} "
            f"({rule}{'; angarium dev allows it' if address.is_loopback else ''})"
        )
    return found
