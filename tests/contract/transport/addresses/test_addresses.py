"""No address that is not public is connected to, as seen at a socket that listens on each of them.

On any machine that is loopback and whatever else is its own. Where Linux lets us have a network of our own,
every address there is listens, so that each of the vectors would be seen.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

import msgspec
import pytest

from angarium.delivery.connections.guard import Guard, not_public
from angarium.delivery.http_exchange.target import InvalidTarget, parse_target
from angarium.delivery.http_exchange.transport import FailureKind
from tests.contract.transport.addresses import all_addresses
from tests.contract.transport.addresses.all_addresses import Tried
from tests.contract.transport.conftest import MakeTransport, failed, post_to
from tests.contract.transport.receiver import Receiver
from tests.support.addresses import LOOPBACK_SPELLINGS, NOT_PUBLIC, PUBLIC

ROOT = Path(__file__).parents[4]
PATIENCE_S = 60.0
NETWORK = ("unshare", "--map-root-user", "--net")
"""A network namespace, in which we may give ourselves addresses (unshare(1))."""
ALL_LOCAL = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && ip -6 route add local ::/0 dev lo"


async def test_no_spelling_of_this_machine_is_connected_to(make_transport: MakeTransport) -> None:
    receiver = Receiver()
    await receiver.start(host="")
    transport = make_transport(Guard(allow_http=True))
    for spelling in LOOPBACK_SPELLINGS:
        url = f"http://{spelling}:{receiver.port}/"
        try:
            parse_target(url)
        except InvalidTarget:
            continue  # No request can be made of it at all.
        assert failed(await post_to(transport, url)).kind is FailureKind.BLOCKED, spelling
    assert receiver.connections == 0
    await receiver.stop()


async def test_no_address_that_is_not_public_is_connected_to(make_transport: MakeTransport) -> None:
    tried = await all_addresses.tried(make_transport, NOT_PUBLIC)
    assert_refused_by_rule(tried, NOT_PUBLIC)
    assert tried.connections == 0


@pytest.fixture(scope="module")
def everywhere_tried() -> dict[str, dict[str, Tried]]:
    """The results for all vectors in a network where every address is this machine's."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("takes unshare and ip of Linux")
    if subprocess.run([*NETWORK, "sh", "-c", ALL_LOCAL], capture_output=True).returncode:
        pytest.skip("a network namespace is not allowed here")
    script = f"{ALL_LOCAL} && exec {sys.executable} -m {all_addresses.__name__}"
    done = subprocess.run(
        [*NETWORK, "sh", "-c", script], cwd=ROOT, capture_output=True, timeout=PATIENCE_S, check=True
    )
    return msgspec.json.decode(done.stdout, type=dict[str, dict[str, Tried]])


@pytest.mark.parametrize("kind", ["Http1Transport", "HttpxTransport"])
def test_only_public_and_allowed_addresses_are_connected_to_although_all_listen(
    everywhere_tried: dict[str, dict[str, Tried]], kind: str
) -> None:
    nothing, ten, everything = (everywhere_tried[kind][name] for name in all_addresses.ALLOWED)
    in_ten = [address for address in NOT_PUBLIC if address.startswith("10.")]

    assert_refused_by_rule(nothing, NOT_PUBLIC)
    assert_answered(nothing, PUBLIC)
    assert_refused_by_rule(ten, set(NOT_PUBLIC) - set(in_ten))
    assert_answered(ten, [*PUBLIC, *in_ten])
    # That each would have been seen: what no guard refuses is reached, except what TCP does not go to.
    assert_answered(everything, [*PUBLIC, *(address for address in NOT_PUBLIC if is_for_tcp(address))])
    for tried in (nothing, ten, everything):
        assert tried.connections == tried.answered


def assert_refused_by_rule(tried: Tried, addresses: Iterable[str]) -> None:
    for address in addresses:
        rule = not_public(ip_address(address))
        assert rule is not None
        for outcome in tried.outcomes[address]:
            assert outcome.startswith("blocked: ")
            assert f"is not public ({rule}); the operator can allow it (setting allow_networks)" in outcome


def assert_answered(tried: Tried, addresses: Iterable[str]) -> None:
    for address in addresses:
        assert set(tried.outcomes[address]) == {all_addresses.OK}, address


def is_for_tcp(address: str) -> bool:
    """Multicast and broadcast are not; link-local addresses take the name of a network card."""
    parsed = ip_address(address)
    takes_a_card = parsed.version == 6 and parsed.is_link_local
    return not parsed.is_multicast and not takes_a_card and address != "255.255.255.255"
