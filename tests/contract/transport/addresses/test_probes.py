"""A probe: it connects only where an attempt may, sends nothing, and says nothing about our own lacks."""

import asyncio
import errno
from ipaddress import ip_network
from unittest.mock import patch

import pytest

from angarium.delivery.connections.guard import Guard
from angarium.delivery.connections.resolver import DnsResolver, Resolved
from angarium.delivery.http_exchange.target import parse_target
from angarium.delivery.own_outage import prober
from angarium.delivery.own_outage.prober import Prober
from tests.contract.transport.receiver import Receiver
from tests.support.free_ports import free_port

ALLOWED = Guard(allow_http=True, allow_networks=[ip_network("127.0.0.0/8")])


async def test_a_host_that_accepts_a_connection_is_reached_and_gets_no_byte(receiver: Receiver) -> None:
    target = parse_target(f"http://127.0.0.1:{receiver.port}/")
    probe = Prober(ALLOWED)
    assert await probe("acme", target) is True
    assert receiver.requests == []
    assert probe.address_of(target) == "127.0.0.1"


async def test_a_refused_connection_and_an_unknown_name_are_failures() -> None:
    assert await Prober(ALLOWED)("acme", parse_target(f"http://127.0.0.1:{free_port()}/")) is False

    class Broken(DnsResolver):
        async def resolve(self, host: str) -> Resolved:
            raise OSError("no server could be asked")

    target, guard = parse_target("https://hook.example/"), Guard(resolver=Broken())
    assert await Prober(guard)("acme", target) is False
    assert Prober(guard).address_of(target) == ""


async def test_a_silent_host_is_a_failure_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "PROBE_TIMEOUT_S", 0.05)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    with patch.object(asyncio, "open_connection", never):
        assert await Prober(ALLOWED)("acme", parse_target("http://127.0.0.1:9/")) is False


async def test_a_blocked_address_and_a_lack_of_ours_say_nothing() -> None:
    blocked = parse_target("https://10.0.0.1/")
    assert await Prober(Guard())("acme", blocked) is None

    async def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with patch.object(asyncio, "open_connection", full):
        assert await Prober(ALLOWED)("acme", parse_target("http://127.0.0.1:9/")) is None
