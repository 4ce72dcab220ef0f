"""Nothing that is not public is connected to, however it is spelled and whatever it resolves to."""

import asyncio
import socket
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.delivery.guard import (
    KEPT_S,
    Address,
    Allowed,
    Guard,
    Refused,
    SystemResolver,
    Unresolved,
    Verdict,
    not_public,
)
from angarium.delivery.target import parse_target

NOT_PUBLIC = """
    0.0.0.0 0.1.2.3 10.0.0.0 10.255.255.255 100.64.0.0 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1
    127.254.254.254 168.63.129.16 169.254.1.1 169.254.169.254 172.16.0.0 172.16.5.4 172.31.255.255 192.0.0.0
    192.0.0.192 192.0.0.255 192.0.2.255 192.88.99.1 192.168.0.0 192.168.1.1 192.168.255.255 198.18.0.0
    198.19.255.255 198.51.100.65 203.0.113.6 224.0.0.1 239.255.255.250 240.0.0.0 240.240.240.240
    255.255.255.255
    :: ::1 1::1 ::2 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:8.8.8.8 ::7f00:1
    ::ffff:0:7f00:1 ::ffff:0:8.8.8.8 ::5efe:7f00:1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::10.0.0.1
    64:ff9b::168.63.129.16 64:ff9b:0:0:1::8.8.8.8 64:ff9b:1::1 64:ff9b:1::8.8.8.8 100::1 100:0:0:1::1 2001::1
    2001:0:7f00:1::1 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 2001:db8::1 2001:db8:ffff::1
    2002:7f00:1::1 2002:808:808::1 3fff::1 3fff:fff:ffff::1 4000::1 5f00::1 8000::1 fc00::1 fd00:ec2::254
    fdff:ffff::1 fe80::1 fe80::1%eth0 febf:ffff::1 fec0::1 feff::1 ff02::1 ff0e::1
"""

PUBLIC = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.15
    169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0 192.88.98.255
    192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 2001:200::1 2001:4860:4860::8888
    2003::1 2606:4700:4700::1111 2a00::1 3ffe::1 64:ff9b::101:101
"""


class Names:
    """A resolver that answers from a table and counts how often it was asked."""

    def __init__(self, **names: list[str]) -> None:
        self.names = names
        self.asked = 0

    async def resolve(self, host: str) -> list[str]:
        self.asked += 1
        await asyncio.sleep(0)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service\nnot known")
        return self.names[host]


def judge(url: str, guard: Guard) -> Verdict:
    return asyncio.run(guard.judge(parse_target(url)))


def url_of(address: str) -> str:
    return f"https://[{address}]/" if ":" in address else f"https://{address}/"


@pytest.mark.parametrize("address", NOT_PUBLIC.split())
def test_an_address_that_is_not_public_is_refused_as_it_stands_and_behind_a_name(address: str) -> None:
    guard = Guard(resolver=Names(hook=["1.1.1.1", address, "2606:4700:4700::1111"]))
    assert not_public(ip_address(address))
    assert isinstance(judge("https://hook/", guard), Refused)
    if "%" not in address:
        assert isinstance(judge(url_of(address), guard), Refused)


@pytest.mark.parametrize("address", PUBLIC.split())
def test_a_public_address_is_allowed_as_it_stands_and_behind_a_name(address: str) -> None:
    guard = Guard(resolver=Names(hook=[address]))
    assert not_public(ip_address(address)) is None
    assert judge("https://hook/", guard) == Allowed((address,))
    assert judge(url_of(address), guard) == Allowed((str(ip_address(address)),))


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


def test_a_name_is_asked_for_once_while_its_answer_is_fresh() -> None:
    names = Names(hook=["1.1.1.1", "1.1.1.1"])
    guard = Guard(resolver=names)
    target = parse_target("https://hook/")

    async def ask() -> float:
        assert guard.known(target, asyncio.get_running_loop().time()) is None
        verdicts = await asyncio.gather(*(guard.judge(target) for _ in range(5)))
        assert verdicts == [Allowed(("1.1.1.1",))] * 5
        return asyncio.get_running_loop().time()

    asked_at = asyncio.run(ask())
    assert names.asked == 1
    assert guard.known(target, asked_at) == Allowed(("1.1.1.1",))
    assert guard.known(target, asked_at + KEPT_S + 1) is None


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


@pytest.mark.parametrize("text", ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "017700000001"])
def test_the_system_resolver_reads_every_spelling_of_an_address_and_the_guard_judges_what_it_read(
    text: str,
) -> None:
    (address,) = set(asyncio.run(SystemResolver().resolve(text)))
    assert address == "127.0.0.1"
    assert isinstance(judge("https://hook/", Guard(resolver=Names(hook=[address]))), Refused)
