"""Names, from the question to the connection: what is believed, for how long, and at whose cost."""

import asyncio
from collections.abc import AsyncIterator
from ipaddress import ip_network

import pytest

from angarium.delivery.guard import Guard
from angarium.delivery.resolver import DnsResolver, Resolved
from angarium.delivery.transport import FailureKind
from tests.contract.transport.conftest import PATIENCE_S, MakeTransport, answered, failed, post_to
from tests.contract.transport.dns import NameServer, Records
from tests.contract.transport.receiver import Receiver
from tests.contract.waiting import until

SOON_S = 0.15
MANY = 50
"""More than there are threads for asking the C library: 4 in uvloop, a few more than cores in asyncio."""
HERE = "127.0.0.1"
ELSEWHERE = "127.0.0.2"


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    async with NameServer() as server:
        yield server


@pytest.fixture
async def resolver(server: NameServer) -> AsyncIterator[DnsResolver]:
    resolver = DnsResolver([server.address])
    yield resolver
    resolver.close()


@pytest.fixture
async def elsewhere(receiver: Receiver) -> AsyncIterator[Receiver]:
    """A second receiver, at the first one's port of another address."""
    other = Receiver()
    await other.start(host=ELSEWHERE, port=receiver.port)
    yield other
    await other.stop()


async def test_all_addresses_of_a_name_and_how_long_they_hold(
    server: NameServer, resolver: DnsResolver
) -> None:
    server.names["hook.example"] = Records("192.0.2.1", "192.0.2.2", "2001:db8::1", ttl=7)
    resolved = await resolver.resolve("hook.example")
    assert sorted(resolved.addresses) == ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
    assert resolved.valid_s == 7


async def test_an_alias_that_holds_for_less_is_what_counts(server: NameServer, resolver: DnsResolver) -> None:
    server.names["hook.example"] = Records(alias="cdn.example", ttl=5)
    server.names["cdn.example"] = Records("192.0.2.1", ttl=3600)
    assert await resolver.resolve("hook.example") == Resolved(("192.0.2.1",), 5)


async def test_an_answer_does_not_hold_longer_for_being_asked_for_again(
    server: NameServer, resolver: DnsResolver
) -> None:
    """c-ares keeps answers as well; what it keeps must grow old."""
    server.names["hook.example"] = Records("192.0.2.1", ttl=1)
    await resolver.resolve("hook.example")
    server.names["hook.example"] = Records("192.0.2.2", ttl=1)
    async with asyncio.timeout(PATIENCE_S):
        while (resolved := await resolver.resolve("hook.example")).addresses != ("192.0.2.2",):
            assert resolved.valid_s <= 1
            await asyncio.sleep(SOON_S)


async def test_the_hosts_file_comes_first_and_is_never_kept(resolver: DnsResolver) -> None:
    resolved = await resolver.resolve("localhost")
    assert HERE in resolved.addresses
    assert resolved.valid_s == 0


@pytest.mark.parametrize("name", ["nowhere.example", "bare.example"])
async def test_a_name_without_addresses_is_an_error_of_the_system(
    server: NameServer, resolver: DnsResolver, name: str
) -> None:
    server.names["bare.example"] = Records()
    with pytest.raises(OSError, match=r"not found|no data"):
        await resolver.resolve(name)


async def test_names_whose_servers_are_silent_hold_nobody_up_and_meet_the_deadline(
    server: NameServer, resolver: DnsResolver, make_transport: MakeTransport, receiver: Receiver
) -> None:
    server.names["hook.example"] = Records(HERE)
    silent = [f"silent-{i}.example" for i in range(MANY)]
    server.silent.update(silent)
    transport = make_transport(resolver=resolver)
    waiting = [asyncio.create_task(post_to(transport, f"http://{name}/")) for name in silent]
    await until(lambda: len(server.asked) == MANY)
    answered(await post_to(transport, f"http://hook.example:{receiver.port}/"))
    assert not any(task.done() for task in waiting)
    failure = failed(await post_to(transport, f"http://{silent[0]}/", timeout_s=SOON_S))
    assert (failure.kind, failure.detail) == (
        FailureKind.TIMEOUT,
        "silent-0.example was not resolved in time",
    )
    for task in waiting:
        task.cancel()


async def test_a_name_that_leads_elsewhere_between_check_and_connect_finds_no_gap(
    server: NameServer,
    resolver: DnsResolver,
    make_transport: MakeTransport,
    receiver: Receiver,
    elsewhere: Receiver,
) -> None:
    """Each question gets another answer: here, which is allowed, then elsewhere, which is not, and so on."""
    turns = [HERE, ELSEWHERE]
    server.names["turns.example"] = Records(ttl=0)

    def turn(name: str) -> None:
        server.names[name] = Records(turns[0], ttl=0)
        turns.reverse()

    server.on_asked = turn
    guard = Guard(allow_http=True, allow_networks=[ip_network(f"{HERE}/32")], resolver=resolver)
    transport = make_transport(guard)
    url = f"http://turns.example:{receiver.port}/"
    for number in range(1, 4):
        answered(await post_to(transport, url))
        failure = failed(await post_to(transport, url))
        assert failure.kind is FailureKind.BLOCKED
        assert failure.detail.startswith(f"turns.example has the address {ELSEWHERE}, which is not public")
        assert server.asked["turns.example"] == 2 * number
    assert (len(receiver.requests), elsewhere.connections) == (3, 0)


async def test_a_name_with_one_address_that_is_allowed_and_one_that_is_not_is_refused_whole(
    server: NameServer,
    resolver: DnsResolver,
    make_transport: MakeTransport,
    receiver: Receiver,
    elsewhere: Receiver,
) -> None:
    guard = Guard(allow_http=True, allow_networks=[ip_network(f"{HERE}/32")], resolver=resolver)
    transport = make_transport(guard)
    for name, addresses in (("one.example", (HERE, ELSEWHERE)), ("two.example", (HERE, "::1"))):
        server.names[name] = Records(*addresses)
        failure = failed(await post_to(transport, f"http://{name}:{receiver.port}/"))
        assert failure.kind is FailureKind.BLOCKED
        assert "(loopback, RFC " in failure.detail
    assert (receiver.connections, elsewhere.connections) == (0, 0)


async def test_a_resolver_that_is_closed_leaves_nobody_waiting(
    server: NameServer, resolver: DnsResolver, make_transport: MakeTransport
) -> None:
    server.silent.add("silent.example")
    posting = asyncio.create_task(post_to(make_transport(resolver=resolver), "http://silent.example/"))
    await until(lambda: bool(server.asked))
    resolver.close()
    assert failed(await posting).kind is FailureKind.RESOLVE
