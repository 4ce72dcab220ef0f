"""A proxy that fails in every way: that counts as its failure, is bounded, and delays no other proxy."""

import asyncio
import socket
from collections.abc import Hashable

import pytest

from angarium.delivery.connections.connection_turns import Waiter
from angarium.delivery.connections.fair_slots import FairSlots
from angarium.delivery.connections.pool import ConnectionLimits
from angarium.delivery.egress import proxy as proxy_module
from angarium.delivery.egress.proxy import TUNNEL_REQUESTS_MAX
from angarium.delivery.egress.tunnel import ANSWER_BYTES_MAX
from angarium.delivery.http_exchange.transport import Failure, FailureKind, ProfileNames, Response
from angarium.egress_settings import ProxySettings
from tests.contract.transport.conftest import answered, failed, post_to
from tests.contract.transport.egress.conftest import Egress, Names
from tests.contract.transport.egress.proxy import OPENED, Client, Script, TestProxy, answering
from tests.contract.transport.receiver import Receiver
from tests.support.waiting import until

EU = ProfileNames("eu")
SOON_S = 0.3
ENOUGH_S = 30.0

REFUSALS = {
    "HTTP/1.1 403 Forbidden\r\ncontent-length: 3\r\n\r\nno!": "answered 403",
    "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n": "did not accept our user and password (407)",
    "HTTP/1.1 502 Bad Gateway\r\n\r\n": "answered 502",
    "HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_DNS 0\r\n\r\n": "answered 503 (ERR_DNS 0)",
    "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/\r\n\r\n": "answered 302",
    "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n": "",
    "HTTP/1.1 " + "100 Continue\r\n\r\nHTTP/1.1 " * 20 + "200 OK\r\n\r\n": "",
    "SSH-2.0-OpenSSH_9.2\r\n\r\n": "sent a malformed answer: does not begin with HTTP/",
    "HTTP/1.1 200 OK\r\nx: " + "y" * ANSWER_BYTES_MAX: f"answered with headers over {ANSWER_BYTES_MAX} bytes",
    "HTTP/1.1 200 OK\r\n" + "a: b\r\n" * 300 + "\r\n": "",
    "HTTP/1.1 200 OK\r\nno colon\r\n\r\n": "sent a malformed answer",
}


@pytest.mark.parametrize("text", REFUSALS, ids=range(len(REFUSALS)))
async def test_an_answer_other_than_an_open_tunnel_is_the_proxys_failure(
    egress: Egress, proxy: TestProxy, receiver: Receiver, text: str
) -> None:
    proxy.script = answering(text.encode())
    failure = await _failure(egress, proxy, receiver)
    assert failure.kind is FailureKind.PROXY
    assert failure.detail.startswith(f"proxy eu: {REFUSALS[text]}")
    assert "127.0.0.1" not in failure.detail
    await until(lambda: proxy.open == 0)
    assert receiver.connections == 0


async def _failure(
    egress: Egress, proxy: TestProxy, receiver: Receiver, timeout_s: float = ENOUGH_S
) -> Failure:
    transport = egress.transport(proxies=_settings(proxy))
    url = f"http://hook.example:{receiver.port}/"
    return failed(await post_to(transport, url, profiles=EU, timeout_s=timeout_s))


def _settings(proxy: TestProxy) -> dict[str, ProxySettings]:
    return {"eu": ProxySettings(url=f"http://proxy.example:{proxy.port}")}


async def silent(client: Client) -> None:
    await client.asked()
    await client.until_closed()


async def dribbling(client: Client) -> None:
    await client.asked()
    await client.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await client.send(b"x: y\r\n")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("script", [silent, dribbling])
async def test_a_proxy_that_does_not_finish_its_answer_has_the_attempts_time(
    egress: Egress, proxy: TestProxy, receiver: Receiver, script: Script
) -> None:
    proxy.script = script
    failure = await _failure(egress, proxy, receiver, SOON_S)
    assert (failure.kind, failure.detail) == (FailureKind.PROXY, "proxy eu: did not answer in time")
    assert 0.9 * SOON_S < failure.latency_s < SOON_S + 5
    await until(lambda: proxy.open == 0)


async def test_a_proxy_that_hangs_up_fails_the_attempt_and_not_the_receiver(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    async def at_once(client: Client) -> None:
        client.writer.transport.abort()

    async def halfway(client: Client) -> None:
        await client.asked()
        await client.send(b"HTTP/1.1 200 OK\r\nx: ")

    for script in (at_once, halfway):
        proxy.script = script
        failure = await _failure(egress, proxy, receiver)
        assert failure.kind is FailureKind.PROXY, failure
        assert "closed the connection before its answer was complete" in failure.detail


async def test_a_proxy_that_does_not_listen_fails_the_attempt_and_not_the_receiver(
    egress: Egress, receiver: Receiver
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://proxy.example:{bound.getsockname()[1]}"
        transport = egress.transport(proxies={"eu": ProxySettings(url=url)})
        failure = failed(await post_to(transport, f"http://hook.example:{receiver.port}/", profiles=EU))
    assert (failure.kind, failure.detail) == (
        FailureKind.PROXY, "proxy eu: was not reached (Connection refused)",
    )  # fmt: skip


async def test_a_proxy_whose_name_is_unknown_fails_the_attempt_and_not_the_receiver(
    egress: Egress, receiver: Receiver, names: Names
) -> None:
    transport = egress.transport(proxies={"eu": ProxySettings(url="http://nowhere.example:3128")})
    failure = failed(await post_to(transport, f"http://hook.example:{receiver.port}/", profiles=EU))
    assert (failure.kind, failure.detail) == (FailureKind.PROXY, "proxy eu: its name was not resolved")


async def test_a_proxy_without_tls_fails_the_attempt_and_not_the_receiver(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    proxy.script = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    transport = egress.transport(proxies={"eu": ProxySettings(url=f"https://proxy.example:{proxy.port}")})
    url = f"http://hook.example:{receiver.port}/"
    failure = failed(await post_to(transport, url, profiles=EU, timeout_s=SOON_S))
    assert failure.kind is FailureKind.PROXY


async def test_a_hanging_proxy_takes_few_connections_and_does_not_delay_others(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    hanging = TestProxy()
    hanging.script = silent
    await hanging.start()
    transport = egress.transport(
        proxies={
            "eu": ProxySettings(url=f"http://proxy.example:{proxy.port}"),
            "dead": ProxySettings(url=f"http://proxy.example:{hanging.port}"),
        },
        limits=ConnectionLimits(connections_max=TUNNEL_REQUESTS_MAX + 8),
    )
    url = f"http://hook.example:{receiver.port}/"

    async def through(proxy: str, receiver: str) -> Response | Failure:
        return await post_to(
            transport, url, receiver=receiver, profiles=ProfileNames(proxy), timeout_s=ENOUGH_S
        )

    stuck = [asyncio.create_task(through("dead", f"acme.r{i}")) for i in range(2 * TUNNEL_REQUESTS_MAX)]
    await until(lambda: len(hanging.heads) == TUNNEL_REQUESTS_MAX // 2)
    for _ in range(2):
        assert answered(await through("eu", "beta.quick")).latency_s < ENOUGH_S / 3
    answered(await post_to(transport, url, receiver="beta.direct"))
    assert len(hanging.heads) == TUNNEL_REQUESTS_MAX // 2  # One tenant gets half of them.
    for task in stuck:
        task.cancel()
    await asyncio.wait(stuck)
    await hanging.stop()


async def test_a_tenant_whose_receivers_a_proxy_does_not_reach_leaves_it_to_others(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    async def reaches_one_host(client: Client) -> None:
        authority = await client.asked()
        if authority.endswith(f":{receiver.port}"):
            await client.send(OPENED)
            await client.lead_to(receiver.port)
        await client.until_closed()

    proxy.script = reaches_one_host
    transport = egress.transport(proxies=_settings(proxy))
    stuck = [
        asyncio.create_task(
            post_to(
                transport, "http://hook.example:9/", receiver=f"acme.r{i}", profiles=EU, timeout_s=ENOUGH_S
            )
        )
        for i in range(TUNNEL_REQUESTS_MAX)
    ]
    await until(lambda: len(proxy.heads) == TUNNEL_REQUESTS_MAX // 2)
    url = f"http://hook.example:{receiver.port}/"
    quick = await post_to(transport, url, receiver="beta.quick", profiles=EU, timeout_s=ENOUGH_S)
    assert answered(quick).latency_s < ENOUGH_S / 3
    for task in stuck:
        task.cancel()
    await asyncio.wait(stuck)


async def test_receivers_that_hang_in_their_tunnels_hold_no_turn_at_the_proxy(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    """Each is mute once the tunnel is open, so the TLS of the receiver takes all the time."""
    transport = egress.transport(proxies=_settings(proxy))
    mute = TestProxy()
    mute.script = Client.until_closed
    await mute.start()
    url = f"https://hook.example:{mute.port}/"
    stuck = [
        asyncio.create_task(
            post_to(transport, url, receiver=f"t{i % 2}.r{i}", profiles=EU, timeout_s=ENOUGH_S)
        )
        for i in range(TUNNEL_REQUESTS_MAX + 2)
    ]
    await until(lambda: mute.open == TUNNEL_REQUESTS_MAX + 2)
    url = f"http://hook.example:{receiver.port}/"
    quick = await post_to(transport, url, receiver="beta.quick", profiles=EU, timeout_s=ENOUGH_S)
    assert answered(quick).latency_s < ENOUGH_S / 3
    for task in stuck:
        task.cancel()
    await asyncio.wait(stuck)
    await mute.stop()


async def test_a_second_address_is_tried_in_another_turn_at_the_proxy(
    egress: Egress,
    proxy: TestProxy,
    receiver: Receiver,
    names: Names,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxy_module, "TUNNEL_REQUESTS_MAX", 2)
    names.addresses["hook.example"] = ("127.0.0.2", "127.0.0.1")
    asking = most = 0

    async def leads_to_the_second(client: Client) -> None:
        nonlocal asking, most
        if (await client.asked()).startswith("127.0.0.2:"):
            await client.send(OPENED + b"early")
            await client.until_closed()
            return
        asking += 1
        most = max(most, asking)
        await asyncio.sleep(0.05)  # It takes much longer than to be refused at the first address.
        asking -= 1
        await client.send(OPENED)
        await client.lead_to(receiver.port)

    proxy.script = leads_to_the_second
    transport = egress.transport(proxies=_settings(proxy))
    url = f"http://hook.example:{receiver.port}/"
    posts = [post_to(transport, url, receiver=f"acme.r{number}", profiles=EU) for number in range(5)]
    for each in await asyncio.gather(*posts):
        answered(each)
    assert most == 1


async def test_an_attempt_with_several_addresses_keeps_its_place_in_the_queue_at_the_proxy(
    egress: Egress,
    proxy: TestProxy,
    receiver: Receiver,
    names: Names,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxy_module, "TUNNEL_REQUESTS_MAX", 2)
    queued: list[str] = []
    enter = FairSlots.enter

    def counted(turns: FairSlots, sharer: Hashable, name: str) -> Waiter[None]:
        queued.append(name)
        return enter(turns, sharer, name)

    monkeypatch.setattr(FairSlots, "enter", counted)
    names.addresses["hook.example"] = ("127.0.0.2", "127.0.0.1")
    proxy.script = silent
    transport = egress.transport(proxies=_settings(proxy))
    url = f"http://hook.example:{receiver.port}/"
    holder = asyncio.create_task(
        post_to(transport, url, receiver="acme.holder", profiles=EU, timeout_s=ENOUGH_S)
    )
    await until(lambda: len(proxy.heads) == 1)
    failure = failed(await post_to(transport, url, receiver="acme.r", profiles=EU, timeout_s=SOON_S))
    assert failure.detail == "proxy eu: too many attempts wait for its answer"
    assert queued == ["acme.holder", "acme.r"]
    holder.cancel()
    await asyncio.wait((holder,))


async def test_attempts_that_got_no_turn_at_the_proxy_are_not_the_receivers_failure(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    proxy.script = silent
    transport = egress.transport(proxies=_settings(proxy))
    url = f"http://hook.example:{receiver.port}/"
    posts = [
        post_to(transport, url, receiver=f"acme.r{i}", profiles=EU, timeout_s=3 * SOON_S)
        for i in range(TUNNEL_REQUESTS_MAX)
    ]
    failures = [failed(each) for each in await asyncio.gather(*posts)]
    assert len(proxy.heads) < TUNNEL_REQUESTS_MAX, "some got no turn"
    # Those whose turn came with their deadline, as on a busy machine, found no time for a connection.
    assert {each.kind for each in failures} <= {FailureKind.PROXY, FailureKind.OVERLOAD}
