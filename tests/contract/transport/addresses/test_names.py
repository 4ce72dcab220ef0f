"""Names, from the query to the connection: which answers are believed, for how long, and at whose cost."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_network

import pycares
import pytest

from angarium.delivery.connections import guard as guard_module
from angarium.delivery.connections.guard import AddressVerdict, Guard
from angarium.delivery.connections.resolver import ADDRESSES_MAX, CUT_NOTE, DnsResolver, Resolved
from angarium.delivery.http_exchange.target import Target
from angarium.delivery.http_exchange.transport import FailureKind
from tests.contract.transport.addresses.dns import NameServer, Records
from tests.contract.transport.conftest import PATIENCE_S, MakeTransport, answered, failed, post_to
from tests.contract.transport.receiver import Receiver
from tests.support.waiting import until

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


async def test_names_with_silent_servers_delay_no_other_and_meet_the_deadline(
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each lookup gets another address: an allowed one, then a forbidden one, and so on."""
    monkeypatch.setattr(guard_module, "VERDICT_KEPT_MIN_S", 0.0)
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


async def test_a_kept_connection_is_not_used_once_its_name_leads_elsewhere(
    server: NameServer,
    resolver: DnsResolver,
    make_transport: MakeTransport,
    receiver: Receiver,
    elsewhere: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard_module, "VERDICT_KEPT_MIN_S", 0.0)
    transport = make_transport(resolver=resolver)
    url = f"http://moves.example:{receiver.port}/"
    for address in (HERE, ELSEWHERE, HERE):
        server.names["moves.example"] = Records(address, ttl=0)
        answered(await post_to(transport, url))
    assert (len(receiver.requests), len(elsewhere.requests)) == (2, 1)


async def test_one_address_more_than_the_limit_is_returned_of_many(
    server: NameServer, resolver: DnsResolver, make_transport: MakeTransport, receiver: Receiver
) -> None:
    server.names["many.example"] = Records(*(f"127.0.1.{number}" for number in range(70)))
    assert len((await resolver.resolve("many.example")).addresses) == ADDRESSES_MAX + 1
    failure = failed(
        await post_to(make_transport(resolver=resolver), f"http://many.example:{receiver.port}/")
    )
    assert failure.kind is FailureKind.BLOCKED
    assert receiver.connections == 0


async def test_an_answer_that_one_datagram_does_not_hold_is_never_fetched(
    server: NameServer, resolver: DnsResolver, make_transport: MakeTransport, receiver: Receiver
) -> None:
    """Over TCP the owner of a zone could have 4,000 addresses taken apart, for each of its names."""
    server.names["long.example"] = Records()
    server.cut.add("long.example")
    failure = failed(
        await post_to(make_transport(resolver=resolver), f"http://long.example:{receiver.port}/")
    )
    assert failure.kind is FailureKind.RESOLVE
    assert CUT_NOTE in failure.detail
    assert (server.connections, receiver.connections) == (0, 0)


async def test_the_event_loop_never_waits_for_the_lock_of_the_asker(
    resolver: DnsResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The asker holds its lock while it parses an answer."""
    held = threading.Event()

    class Busy:
        def __init__(self, **_: object) -> None:
            """Takes the options of the real one."""

        def getaddrinfo(self, *_: object, callback: Callable[[None, int], None], **__: object) -> None:
            assert held.wait(PATIENCE_S)
            callback(None, pycares.errno.ARES_ENOTFOUND)

        def close(self) -> None:
            assert held.wait(PATIENCE_S)

    monkeypatch.setattr(pycares, "Channel", Busy)
    asking = [asyncio.create_task(resolver.resolve(f"{number}.example")) for number in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    resolver.close()
    held.set()  # Never reached by a loop that waits.
    done = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in done] == [OSError] * 3
    with pytest.raises(OSError, match="the resolver is closed"):
        await resolver.resolve("late.example")


async def test_a_network_that_the_operator_denies_is_never_connected_to(
    server: NameServer,
    resolver: DnsResolver,
    make_transport: MakeTransport,
    receiver: Receiver,
    elsewhere: Receiver,
) -> None:
    guard = Guard(
        allow_http=True,
        allow_networks=[ip_network("127.0.0.0/8")],
        deny_networks=[ip_network(f"{ELSEWHERE}/32")],
        resolver=resolver,
    )
    transport = make_transport(guard)
    server.names["there.example"] = Records(ELSEWHERE)
    server.names["both.example"] = Records(HERE, ELSEWHERE)
    for host in (ELSEWHERE, "there.example", "both.example"):
        failure = failed(await post_to(transport, f"http://{host}:{receiver.port}/"))
        assert failure.kind is FailureKind.BLOCKED
        assert "deny_networks" in failure.detail
    assert (receiver.connections, elsewhere.connections) == (0, 0)
    answered(await post_to(transport, f"http://{HERE}:{receiver.port}/"))


async def test_a_name_with_any_forbidden_address_is_refused(
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


async def test_a_name_is_asked_for_in_the_turn_of_the_receivers_tenant(
    make_transport: MakeTransport, receiver: Receiver
) -> None:
    tenants: list[str] = []

    class Watched(Guard):
        async def check(self, target: Target, tenant: str = "") -> AddressVerdict:
            tenants.append(tenant)
            return await super().check(target, tenant)

    transport = make_transport(Watched(allow_http=True, allow_networks=[ip_network("127.0.0.0/8")]))
    for name in ("acme.billing", "beta.billing"):
        answered(await post_to(transport, f"http://127.0.0.1:{receiver.port}/", receiver=name))
    assert tenants == ["acme", "beta"]


async def test_a_resolver_that_is_closed_ends_all_waiting(
    server: NameServer, resolver: DnsResolver, make_transport: MakeTransport
) -> None:
    server.silent.add("silent.example")
    posting = asyncio.create_task(post_to(make_transport(resolver=resolver), "http://silent.example/"))
    await until(lambda: bool(server.asked))
    resolver.close()
    assert failed(await posting).kind is FailureKind.RESOLVE
