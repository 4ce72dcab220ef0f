"""The guard: only public addresses are connected to, however they are spelled or resolved."""

import asyncio
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.delivery.connections.guard import (
    LOOKUP_COUNTS_FOR_S,
    LOOKUPS_MAX,
    VERDICT_KEPT_MAX_S,
    VERDICT_KEPT_MIN_S,
    Address,
    AddressVerdict,
    Allowed,
    Blocked,
    Guard,
    Unresolved,
    not_public,
)
from angarium.delivery.connections.resolver import ADDRESSES_MAX, Resolved
from angarium.delivery.http_exchange.target import parse_target
from tests.support.addresses import NOT_PUBLIC, PUBLIC, url_host
from tests.unit.worlds.virtual_time import in_virtual_time


class Names:
    """A resolver that answers from a table and counts how often it was asked."""

    def __init__(self, valid_s: float = 30.0, **names: list[str]) -> None:
        self.names = names
        self.valid_s = valid_s
        self.asked = 0

    async def resolve(self, host: str) -> Resolved:
        self.asked += 1
        await asyncio.sleep(0)
        if host not in self.names:
            raise OSError("Name or service\nnot known")
        return Resolved(tuple(self.names[host]), self.valid_s)


def judge(url: str, guard: Guard) -> AddressVerdict:
    return asyncio.run(guard.check(parse_target(url)))


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused_as_it_stands_and_behind_a_name(address: str) -> None:
    guard = Guard(resolver=Names(hook=["1.1.1.1", address, "2606:4700:4700::1111"]))
    assert not_public(ip_address(address))
    assert isinstance(judge("https://hook/", guard), Blocked)
    if "%" not in address:
        assert isinstance(judge(f"https://{url_host(address)}/", guard), Blocked)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed_as_it_stands_and_behind_a_name(address: str) -> None:
    guard = Guard(resolver=Names(hook=[address]))
    assert not_public(ip_address(address)) is None
    assert judge("https://hook/", guard) == Allowed((address,))
    assert judge(f"https://{url_host(address)}/", guard) == Allowed((str(ip_address(address)),))


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_nothing_that_python_holds_for_local_is_public(address: Address) -> None:
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        nat64 = address in ip_network("64:ff9b::/96")
        assert not_public(address) or nat64


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_inside_an_ipv6_one_is_never_more_public_than_itself(address: Address) -> None:
    isatap = ("2606:4700::5efe:", "2606:4700::200:5efe:")
    for prefix in ("::", "::ffff:", "::ffff:0:", "2002:", "64:ff9b::", "64:ff9b:1::", *isatap):
        number = int(address)
        words = f"{number >> 16:x}:{number & 0xFFFF:x}"
        inside = ip_address(f"{prefix}{words}::" if prefix == "2002:" else f"{prefix}{words}")
        if not_public(address):
            assert not_public(inside)


def test_the_verdict_names_the_rule_and_the_way_out() -> None:
    verdict = judge("https://hook/", Guard(resolver=Names(hook=["8.8.8.8", "127.0.0.1"])))
    assert verdict == Blocked(
        "loopback, RFC 1122",
        "hook has the address 127.0.0.1, which is not public (loopback, RFC 1122); "
        "the operator can allow it (setting allow_networks)",
    )
    verdict = judge("https://10.1.2.3/", Guard())
    assert isinstance(verdict, Blocked)
    assert verdict.detail.startswith("10.1.2.3 is not public (private, RFC 1918)")


def test_http_is_refused_unless_it_is_allowed() -> None:
    verdict = judge("http://1.1.1.1/", Guard())
    assert isinstance(verdict, Blocked)
    assert verdict.rule == "https only"
    assert judge("http://1.1.1.1/", Guard(allow_http=True)) == Allowed(("1.1.1.1",))


def test_an_allowed_network_opens_exactly_what_it_says() -> None:
    names = Names(here=["127.0.0.1", "::1"], mapped=["::ffff:127.0.0.1"], mixed=["127.0.0.1", "8.8.8.8"])
    guard = Guard(allow_networks=[ip_network("127.0.0.0/8"), ip_network("fd00:1::/32")], resolver=names)
    assert judge("https://127.9.9.9/", guard) == Allowed(("127.9.9.9",))
    assert judge("https://[fd00:1::7]/", guard) == Allowed(("fd00:1::7",))
    assert judge("https://mixed/", guard) == Allowed(("127.0.0.1", "8.8.8.8"))
    for refused in ("https://here/", "https://mapped/", "https://[::1]/", "https://[fd00:2::1]/"):
        assert isinstance(judge(refused, guard), Blocked)
    assert isinstance(judge("http://127.0.0.1/", guard), Blocked)
    assert isinstance(judge("https://[64:ff9b::7f00:1]/", guard), Blocked)


def test_a_name_without_an_address_is_unresolved_in_one_line() -> None:
    assert judge("https://hook/", Guard(resolver=Names(hook=[]))) == Unresolved("hook has no address")
    verdict = judge("https://nowhere/", Guard(resolver=Names()))
    assert isinstance(verdict, Unresolved)
    assert verdict.detail.startswith("nowhere was not resolved: ")
    assert "\n" not in verdict.detail


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "8.8.8.8",
        "64:ff9b::10.1.2.3",
        "64:ff9b::8.8.8.8",
        "::ffff:10.1.2.3",
        "::10.1.2.3",
        "::ffff:0:10.1.2.3",
        "64:ff9b:1::10.1.2.3",
        "2002:a01:203::1",
        "2001:0:1::f5fe:fdfc",
        "2606:4700::1",
    ],
)
def test_a_denied_network_is_closed_over_every_route_even_if_allowed(
    address: str,
) -> None:
    everything = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    denied = [ip_network(each) for each in ("10.1.0.0/16", "8.8.8.8/32", "2606:4700::/32")]
    names = Names(hook=["9.9.9.9", address], open=["9.9.9.9", "10.2.0.1", "::ffff:10.2.0.1"])
    guard = Guard(allow_networks=everything, deny_networks=denied, resolver=names)
    for url in ("https://hook/", f"https://{url_host(address)}/"):
        verdict = judge(url, guard)
        assert isinstance(verdict, Blocked)
        assert verdict.rule.startswith("denied, ")
        assert "the operator denies it (setting deny_networks)" in verdict.detail
    assert judge("https://open/", guard) == Allowed(("9.9.9.9", "10.2.0.1", "::ffff:10.2.0.1"))


@pytest.mark.parametrize(
    "address",
    [
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:a9:fe:a9fe::",
        "64:ff9b:1:0:a9:fea9:fe00:0",
        "2606:4700::5efe:a9fe:a9fe",
        "2606:4700::200:5efe:a9fe:a9fe",
    ],
)
def test_a_denied_network_is_found_in_each_form_that_carries_its_addresses(address: str) -> None:
    """RFC 6052 splits it around an octet, after 48, 56 or 64 bits; RFC 5214 puts it under any prefix."""
    everything = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    denied = [ip_network("169.254.0.0/16")]
    verdict = judge(f"https://{url_host(address)}/", Guard(allow_networks=everything, deny_networks=denied))
    assert isinstance(verdict, Blocked)
    assert verdict.rule == "denied, 169.254.0.0/16"


@pytest.mark.parametrize("address", ["93.184.7.7", "64:ff9b::93.184.7.7", "::ffff:93.184.7.7"])
def test_a_denied_network_may_be_written_as_ipv4_mapped(address: str) -> None:
    guard = Guard(
        allow_networks=[ip_network("::ffff:0:0/96")], deny_networks=[ip_network("::ffff:93.184.0.0/112")]
    )
    assert isinstance(judge(f"https://{url_host(address)}/", guard), Blocked)
    assert isinstance(judge("https://93.185.0.1/", guard), Allowed)


@pytest.mark.parametrize("last", ["93.0.0.1", "10.0.0.1"])
def test_a_name_with_more_addresses_than_are_looked_at_is_refused_whole(last: str) -> None:
    most = [f"92.0.0.{number}" for number in range(ADDRESSES_MAX)]
    guard = Guard(resolver=Names(most=most, more=[*most, last]))
    assert judge("https://most/", guard) == Allowed(tuple(most))
    verdict = judge("https://more/", guard)
    assert isinstance(verdict, Blocked)
    assert verdict.detail == "more has more than 64 addresses, which is too many to check"


@pytest.mark.parametrize(
    ("valid_s", "kept_s"),
    [
        (0.0, VERDICT_KEPT_MIN_S),
        (0.5, VERDICT_KEPT_MIN_S),
        (2.0, 2.0),
        (299.0, 299.0),
        (86400.0, VERDICT_KEPT_MAX_S),
    ],
)
def test_a_name_is_believed_as_long_as_its_answer_is_valid_and_no_longer(
    valid_s: float, kept_s: float
) -> None:
    names = Names(valid_s, hook=["1.1.1.1"], bad=["10.0.0.1"])
    guard = Guard(resolver=names)
    good, bad = parse_target("https://hook/"), parse_target("https://bad/")

    async def ask() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert guard.known_verdict(good, loop.time()) is None
        earliest = loop.time()
        assert await asyncio.gather(*(guard.check(good) for _ in range(5))) == [Allowed(("1.1.1.1",))] * 5
        assert isinstance(await guard.check(bad), Blocked)
        return earliest, loop.time()

    earliest, latest = asyncio.run(ask())
    assert names.asked == 2
    for target in (good, bad):
        assert guard.known_verdict(target, latest + kept_s) is None
        assert guard.known_verdict(target, earliest + kept_s * 0.99) is not None


def test_a_caller_that_gives_up_waiting_for_a_name_cancels_no_other() -> None:
    async def ask() -> None:
        guard = Guard(resolver=Names(hook=["1.1.1.1"]))
        target = parse_target("https://hook/")
        impatient = asyncio.create_task(guard.check(target))
        patient = asyncio.create_task(guard.check(target))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await patient == Allowed(("1.1.1.1",))
        assert impatient.cancelled()

    asyncio.run(ask())


class Silent(Names):
    """A resolver that has an answer for the names of its table, and for others none, ever."""

    async def resolve(self, host: str) -> Resolved:
        if host in self.names:
            return await super().resolve(host)
        self.asked += 1
        never: asyncio.Future[Resolved] = asyncio.get_running_loop().create_future()
        return await never


@in_virtual_time
async def test_names_of_one_tenant_wait_for_each_other_and_hold_no_other_tenant_up() -> None:
    names = Silent(hook=["1.1.1.1"])
    guard = Guard(resolver=names)
    hook = parse_target("https://hook/")
    many = [parse_target(f"https://n{number}.example/") for number in range(LOOKUPS_MAX + 9)]
    waiting = [asyncio.create_task(guard.check(each, "greedy")) for each in many]
    await asyncio.sleep(LOOKUP_COUNTS_FOR_S / 2)
    assert names.asked == LOOKUPS_MAX
    mine = asyncio.create_task(guard.check(hook, "greedy"))
    async with asyncio.timeout(LOOKUP_COUNTS_FOR_S / 4):
        assert await guard.check(hook, "other") == Allowed(("1.1.1.1",))
    assert names.asked == LOOKUPS_MAX + 1
    assert not mine.done()
    # Silent ones do not keep their turn.
    async with asyncio.timeout(LOOKUP_COUNTS_FOR_S):
        assert await mine == Allowed(("1.1.1.1",))
    assert names.asked == len(many) + 2
    for each in waiting:
        each.cancel()


@in_virtual_time
async def test_an_answered_name_gives_its_turn_back_at_once() -> None:
    names = Names()
    names.names = {f"n{number}": ["1.1.1.1"] for number in range(3 * LOOKUPS_MAX)}
    guard = Guard(resolver=names)
    hosts = [*names.names, *(f"unknown{number}" for number in range(3 * LOOKUPS_MAX))]
    async with asyncio.timeout(LOOKUP_COUNTS_FOR_S / 2):
        await asyncio.gather(*(guard.check(parse_target(f"https://{host}/"), "acme") for host in hosts))
    assert names.asked == len(hosts)


@in_virtual_time
async def test_nothing_is_kept_of_a_tenant_that_asks_for_no_name() -> None:
    guard = Guard(resolver=Names(hook=["1.1.1.1"], other=["1.1.1.1"]))
    await guard.check(parse_target("https://hook/"), "acme")
    await guard.check(parse_target("https://other/"), "beta")
    await asyncio.sleep(0)
    assert not guard._lookup_slots


def test_a_name_that_could_not_be_resolved_is_asked_for_again() -> None:
    names = Names()
    guard = Guard(resolver=names)
    assert isinstance(judge("https://hook/", guard), Unresolved)
    names.names["hook"] = ["1.1.1.1"]
    assert judge("https://hook/", guard) == Allowed(("1.1.1.1",))
