"""Receivers behind a proxy: what it is asked for, who is judged, and what name TLS is verified against."""

import asyncio
import base64
import ssl
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import pytest
import trustme

from angarium.delivery.connections.guard import Guard
from angarium.delivery.http_exchange.transport import EARLY, NO_PROFILES, FailureKind, ProfileNames
from angarium.egress_settings import ProxySettings, TlsSettings
from tests.contract.transport.conftest import answered, failed, post_to
from tests.contract.transport.egress.conftest import PASSWORD, Egress, Names
from tests.contract.transport.egress.proxy import OPENED, Client, TestProxy
from tests.contract.transport.receiver import OK, Peer, Receiver
from tests.support.waiting import until

EU = ProfileNames("eu")
US = ProfileNames("us")


def settings_of(proxy: TestProxy, **members: Any) -> dict[str, ProxySettings]:
    return {"eu": ProxySettings(url=f"http://proxy.example:{proxy.port}", **members)}


async def test_the_proxy_is_asked_for_the_judged_address_over_a_kept_connection(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    transport = egress.transport(proxies=settings_of(proxy))
    for _ in range(3):
        answered(await post_to(transport, f"http://hook.example:{receiver.port}/a", profiles=EU))
    assert proxy.authorities == [f"127.0.0.1:{receiver.port}"]
    assert b"authorization" not in proxy.heads[0]
    assert [each.line for each in receiver.requests] == [b"POST /a HTTP/1.1"] * 3
    assert receiver.requests[0].all(b"host") == [b"hook.example:%d" % receiver.port]


async def test_a_proxy_that_resolves_is_asked_for_the_name(
    egress: Egress, proxy: TestProxy, receiver: Receiver, names: Names
) -> None:
    transport = egress.transport(proxies=settings_of(proxy, resolve="there"))
    answered(await post_to(transport, f"http://inside.example:{receiver.port}/", profiles=EU))
    assert proxy.authorities == [f"inside.example:{receiver.port}"]
    assert names.asked == ["proxy.example"]


@pytest.mark.parametrize("resolve", ["here", "there"])
async def test_addresses_in_urls_are_judged_before_the_proxy_is_asked(
    egress: Egress, proxy: TestProxy, receiver: Receiver, names: Names, resolve: str
) -> None:
    guard = Guard(allow_http=True, deny_networks=[ip_network("192.0.9.0/24")], resolver=names)
    transport = egress.transport(proxies=settings_of(proxy, resolve=resolve), guard=guard)
    for host, rule in (("127.0.0.1", "loopback"), ("[::1]", "loopback"), ("192.0.9.7", "deny_networks")):
        failure = failed(await post_to(transport, f"http://{host}:{receiver.port}/", profiles=EU))
        assert (failure.kind, rule in failure.detail) == (FailureKind.BLOCKED, True)
    assert proxy.clients == []


async def test_names_are_judged_here_unless_they_are_left_to_the_proxy(
    egress: Egress, proxy: TestProxy, receiver: Receiver, names: Names
) -> None:
    guard = Guard(allow_http=True, resolver=names)
    transport = egress.transport(proxies=settings_of(proxy), guard=guard)
    failure = failed(await post_to(transport, f"http://hook.example:{receiver.port}/", profiles=EU))
    assert (failure.kind, proxy.clients) == (FailureKind.BLOCKED, [])


@pytest.mark.parametrize("resolve", ["here", "there"])
async def test_http_is_refused_behind_a_proxy_too(
    egress: Egress, proxy: TestProxy, receiver: Receiver, names: Names, resolve: str
) -> None:
    transport = egress.transport(proxies=settings_of(proxy, resolve=resolve), guard=Guard(resolver=names))
    failure = failed(await post_to(transport, f"http://hook.example:{receiver.port}/", profiles=EU))
    assert (failure.kind, proxy.clients) == (FailureKind.BLOCKED, [])


async def test_user_and_password_go_to_the_proxy_alone(
    egress: Egress, proxy: TestProxy, receiver: Receiver, write: Callable[..., str]
) -> None:
    file = write("password", PASSWORD + "\n")
    transport = egress.transport(proxies=settings_of(proxy, user="angarium", password_file=file))
    answered(await post_to(transport, f"http://hook.example:{receiver.port}/", profiles=EU))
    expected = base64.b64encode(f"angarium:{PASSWORD}".encode())
    assert b"\r\nproxy-authorization: Basic " + expected + b"\r\n" in proxy.heads[0]
    assert not [name for name, _ in receiver.requests[0].headers if b"authorization" in name]


@pytest.mark.parametrize("changed", ["password", "tls"])
async def test_a_changed_password_is_used_for_all_requests_that_begin_later(
    egress: Egress,
    authority: trustme.CA,
    receiver: Receiver,
    write: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    changed: str,
) -> None:
    """The same holds for the TLS profile of the proxy."""
    monkeypatch.setattr("angarium.file_value.FILES_CHECKED_EVERY_S", 0.01)
    proxy, certificate = TestProxy(), authority.cert_pem.bytes()
    await proxy.start(_server_context(authority, "proxy.example"))
    password, authorities = write("password", "old"), write("ca.pem", certificate)
    settings = ProxySettings(
        url=f"https://proxy.example:{proxy.port}", user="angarium", password_file=password, tls="inside"
    )
    transport = egress.transport(
        proxies={"eu": settings}, tls={"inside": TlsSettings(authorities=authorities)}
    )
    reloading = asyncio.create_task(egress.paths.reload_changed_files())
    url = f"http://hook.example:{receiver.port}/"
    for _ in range(2):
        answered(await post_to(transport, url, profiles=EU))
    before = egress.paths.path_for(EU)
    if changed == "password":
        write("password", "newer")
    else:
        write("ca.pem", certificate + trustme.CA().cert_pem.bytes())
    await until(lambda: egress.paths.path_for(EU) is not before)
    answered(await post_to(transport, url, profiles=EU))
    assert len(proxy.clients) == 2
    user = base64.b64encode(b"angarium:" + (b"newer" if changed == "password" else b"old"))
    assert b"Basic " + user in proxy.heads[-1]
    reloading.cancel()
    await transport.close()
    await proxy.stop()


async def test_tls_is_verified_against_the_urls_name_inside_the_tunnel(
    egress: Egress, proxy: TestProxy, authority: trustme.CA, write: Callable[..., str]
) -> None:
    asked: list[str | None] = []
    receiver = Receiver()
    context = _server_context(authority, "hook.example")
    context.sni_callback = lambda _, name, __: asked.append(name)
    await receiver.start(context)
    tls = {"ours": TlsSettings(authorities=write("ca.pem", authority.cert_pem.bytes()))}
    transport = egress.transport(proxies=settings_of(proxy), tls=tls)
    profiles = ProfileNames("eu", "ours")
    for _ in range(2):
        answered(await post_to(transport, f"https://hook.example:{receiver.port}/", profiles=profiles))
    assert (asked, len(proxy.clients)) == (["hook.example"], 1)
    failure = failed(await post_to(transport, f"https://127.0.0.1:{receiver.port}/", profiles=profiles))
    assert failure.kind is FailureKind.TLS
    failure = failed(await post_to(transport, f"https://hook.example:{receiver.port}/", profiles=EU))
    assert failure.kind is FailureKind.TLS
    await receiver.stop()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_over_tls(
    egress: Egress, authority: trustme.CA, write: Callable[..., str], scheme: str
) -> None:
    proxy, receiver = TestProxy(), Receiver()
    await proxy.start(_server_context(authority, "proxy.example"))
    await receiver.start(_server_context(authority, "hook.example") if scheme == "https" else None)
    tls = {"ours": TlsSettings(authorities=write("ca.pem", authority.cert_pem.bytes()))}
    url = f"https://proxy.example:{proxy.port}"
    proxies = {"eu": ProxySettings(url=url, tls="ours"), "unknown": ProxySettings(url=url)}
    transport = egress.transport(proxies=proxies, tls=tls)
    target = f"{scheme}://hook.example:{receiver.port}/"
    for body in (b"{}", b"x" * 262_144):
        answered(await post_to(transport, target, profiles=ProfileNames("eu", "ours"), body=body))
    assert (len(proxy.clients), [len(each.body) for each in receiver.requests]) == (1, [2, 262_144])
    failure = failed(await post_to(transport, target, profiles=ProfileNames("unknown", "ours")))
    assert failure.kind is FailureKind.PROXY
    assert failure.detail.startswith("proxy unknown: its certificate is not valid: ")
    await transport.close()
    await until(lambda: proxy.open == receiver.open == 0)
    await proxy.stop()
    await receiver.stop()


async def test_a_connection_through_a_proxy_serves_no_other_way(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    proxies = settings_of(proxy) | {"us": ProxySettings(url=f"http://127.0.0.1:{proxy.port}")}
    transport = egress.transport(proxies=proxies)
    for profiles in (EU, US, NO_PROFILES, EU):
        answered(await post_to(transport, f"http://hook.example:{receiver.port}/", profiles=profiles))
    assert (len(proxy.clients), receiver.connections) == (2, 3)


async def test_connections_through_each_proxy_are_counted(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    proxies = settings_of(proxy) | {"us": ProxySettings(url="http://127.0.0.1:1")}
    transport = egress.transport(proxies=proxies)
    assert transport.proxy_connections() == {"eu": 0, "us": 0}
    url = f"http://hook.example:{receiver.port}/"
    for name, profiles in (
        ("acme.a", EU),
        ("acme.b", EU),
        ("acme.b", US),
        ("acme.b", NO_PROFILES),
    ):
        await post_to(transport, url, receiver=name, profiles=profiles)
    assert transport.proxy_connections() == {"eu": 2, "us": 0}
    await transport.close()
    assert transport.proxy_connections() == {"eu": 0, "us": 0}


async def test_bytes_that_come_through_the_tunnel_first_are_not_an_answer(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    async def chatty(client: Client) -> None:
        await client.asked()
        await client.send(OPENED + OK)
        await client.until_closed()

    proxy.script = chatty
    transport = egress.transport(proxies=settings_of(proxy))
    failure = failed(await post_to(transport, f"http://hook.example:{receiver.port}/", profiles=EU))
    assert (failure.kind, failure.detail) == (FailureKind.PROTOCOL, EARLY)


async def test_the_lease_is_asked_for_after_the_tunnel_is_open(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    transport = egress.transport(proxies=settings_of(proxy))
    lost = post_to(
        transport,
        f"http://hook.example:{receiver.port}/",
        profiles=EU,
        may_start=lambda: not proxy.authorities,
    )
    assert failed(await lost).kind is FailureKind.LEASE
    assert receiver.requests == []


async def test_a_receiver_behind_a_proxy_that_hangs_up_counts_as_itself(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    async def hangs_up(peer: Peer) -> None:
        await peer.request()

    receiver.plays(hangs_up)
    transport = egress.transport(proxies=settings_of(proxy))
    failure = failed(await post_to(transport, f"http://hook.example:{receiver.port}/", profiles=EU))
    assert failure.kind is FailureKind.RESET


async def test_a_kept_tunnel_that_has_died_is_replaced_once(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    async def once(peer: Peer) -> None:
        await peer.answer()
        await peer.request()

    receiver.plays(once, once)
    transport = egress.transport(proxies=settings_of(proxy))
    for _ in range(2):
        answered(await post_to(transport, f"http://hook.example:{receiver.port}/", profiles=EU))
    assert (len(proxy.clients), receiver.connections) == (2, 2)


async def test_an_attempt_that_is_cancelled_in_the_tunnel_leaves_no_connection(
    egress: Egress, proxy: TestProxy, receiver: Receiver
) -> None:
    async def silent(client: Client) -> None:
        await client.asked()
        await client.until_closed()

    proxy.script = silent
    transport = egress.transport(proxies=settings_of(proxy))
    post = asyncio.create_task(post_to(transport, f"http://hook.example:{receiver.port}/", profiles=EU))
    await until(lambda: len(proxy.heads) == 1)
    post.cancel()
    await asyncio.wait((post,))
    await until(lambda: proxy.open == 0)
    await transport.close()


def _server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    return context
