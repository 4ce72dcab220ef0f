"""Nothing that is not public is connected to, however it is spelled and whatever it resolves to."""

import asyncio
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.delivery.guard import (
    KEPT_MAX_S,
    Address,
    Allowed,
    Guard,
    Refused,
    Unresolved,
    Verdict,
    not_public,
)
from angarium.delivery.resolver import Resolved
from angarium.delivery.target import parse_target
from tests.addresses import NOT_PUBLIC, PUBLIC, url_host


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


def judge(url: str, guard: Guard) -> Verdict:
    return asyncio.run(guard.judge(parse_target(url)))


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused_as_it_stands_and_behind_a_name(address: str) -> None:
    guard = Guard(resolver=Names(hook=["1.1.1.1", address, "2606:4700:4700::1111"]))
    assert not_public(ip_address(address))
    assert isinstance(judge("https://hook/", guard), Refused)
    if "%" not in address:
        assert isinstance(judge(f"https://{url_host(address)}/", guard), Refused)


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
    for prefix in ("::", "::ffff:", "::ffff:0:", "2002:", "64:ff9b::", "64:ff9b:1::"):
        number = int(address)
        words = f"{number >> 16:x}:{number & 0xFFFF:x}"
        inside = ip_address(f"{prefix}{words}::" if prefix == "2002:" else f"{prefix}{words}")
        if not_public(address):
            assert not_public(inside)


def test_the_verdict_names_the_rule_and_the_way_out() -> None:
    verdict = judge("https://hook/", Guard(resolver=Names(hook=["8.8.8.8", "127.0.0.1"])))
    assert verdict == Refused(
        "loopback, RFC 1122",
        "hook has the address 127.0.0.1, which is not public (loopback, RFC 1122); "
        "the operator can allow it (--allow-network)",
    )
    verdict = judge("https://10.1.2.3/", Guard())
    assert isinstance(verdict, Refused)
    assert verdict.detail.startswith("10.1.2.3 is not public (private, RFC 1918)")


def test_http_is_refused_unless_it_is_allowed() -> None:
    verdict = judge("http://1.1.1.1/", Guard())
    assert isinstance(verdict, Refused)
    assert verdict.rule == "https only"
    assert judge("http://1.1.1.1/", Guard(allow_http=True)) == Allowed(("1.1.1.1",))


def test_an_allowed_network_opens_exactly_what_it_says() -> None:
    names = Names(here=["127.0.0.1", "::1"], mapped=["::ffff:127.0.0.1"], mixed=["127.0.0.1", "8.8.8.8"])
    guard = Guard(allow_networks=[ip_network("127.0.0.0/8"), ip_network("fd00:1::/32")], resolver=names)
    assert judge("https://127.9.9.9/", guard) == Allowed(("127.9.9.9",))
    assert judge("https://[fd00:1::7]/", guard) == Allowed(("fd00:1::7",))
    assert judge("https://mixed/", guard) == Allowed(("127.0.0.1", "8.8.8.8"))
    for refused in ("https://here/", "https://mapped/", "https://[::1]/", "https://[fd00:2::1]/"):
        assert isinstance(judge(refused, guard), Refused)
    assert isinstance(judge("http://127.0.0.1/", guard), Refused)
    assert isinstance(judge("https://[64:ff9b::7f00:1]/", guard), Refused)


def test_a_name_without_an_address_is_unresolved_in_one_line() -> None:
    assert judge("https://hook/", Guard(resolver=Names(hook=[]))) == Unresolved("hook has no address")
    verdict = judge("https://nowhere/", Guard(resolver=Names()))
    assert isinstance(verdict, Unresolved)
    assert verdict.detail.startswith("nowhere was not resolved: ")
    assert "\n" not in verdict.detail


@pytest.mark.parametrize(
    ("valid_s", "kept_s"), [(0.0, 0.0), (1.0, 1.0), (299.0, 299.0), (86400.0, KEPT_MAX_S)]
)
def test_a_name_is_believed_as_long_as_its_answer_is_valid_and_no_longer(
    valid_s: float, kept_s: float
) -> None:
    names = Names(valid_s, hook=["1.1.1.1"], bad=["10.0.0.1"])
    guard = Guard(resolver=names)
    good, bad = parse_target("https://hook/"), parse_target("https://bad/")

    async def ask() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert guard.known(good, loop.time()) is None
        earliest = loop.time()
        assert await asyncio.gather(*(guard.judge(good) for _ in range(5))) == [Allowed(("1.1.1.1",))] * 5
        assert isinstance(await guard.judge(bad), Refused)
        return earliest, loop.time()

    earliest, latest = asyncio.run(ask())
    assert names.asked == 2
    for target in (good, bad):
        assert guard.known(target, latest + kept_s) is None
        if kept_s:
            assert guard.known(target, earliest + kept_s * 0.99) is not None


def test_who_gives_up_waiting_for_a_name_takes_nobody_along() -> None:
    async def ask() -> None:
        guard = Guard(resolver=Names(hook=["1.1.1.1"]))
        target = parse_target("https://hook/")
        impatient = asyncio.create_task(guard.judge(target))
        patient = asyncio.create_task(guard.judge(target))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await patient == Allowed(("1.1.1.1",))
        assert impatient.cancelled()

    asyncio.run(ask())


def test_a_name_that_could_not_be_resolved_is_asked_for_again() -> None:
    names = Names()
    guard = Guard(resolver=names)
    assert isinstance(judge("https://hook/", guard), Unresolved)
    names.names["hook"] = ["1.1.1.1"]
    assert judge("https://hook/", guard) == Allowed(("1.1.1.1",))
