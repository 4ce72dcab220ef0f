"""Receivers behind Squid as Debian has it; skipped where it is not installed."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import trustme

from angarium.delivery.connections.guard import Guard
from angarium.delivery.connections.resolver import Resolved
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.target import parse_target
from angarium.delivery.http_exchange.transport import Failure, FailureKind, ProfileNames, Request, Response
from angarium.egress_settings import Profiles, ProxySettings, TlsSettings
from tests.contract.transport.receiver import Receiver
from tests.support.free_ports import free_port
from tests.support.waiting import until_true

SQUID = shutil.which("squid") or shutil.which("squid", path="/usr/sbin")
HELPER = Path("/usr/lib/squid/basic_ncsa_auth")

pytestmark = pytest.mark.skipif(
    SQUID is None or not HELPER.exists(), reason="Squid is not installed (apt-get install squid)"
)

CONFIGURATION = """
http_port 127.0.0.1:{plain}
https_port 127.0.0.1:{secure} tls-cert={directory}/proxy.pem
auth_param basic program {helper} {directory}/users
acl known proxy_auth REQUIRED
acl CONNECT method CONNECT
acl denied dstdomain denied.example
http_access deny !known
http_access deny denied
http_access allow CONNECT
http_access deny all
hosts_file {directory}/hosts
visible_hostname squid.example
pid_filename none
pinger_enable off
cache deny all
access_log none
cache_log {directory}/cache.log
coredump_dir {directory}
max_filedescriptors 256
shutdown_lifetime 0 seconds
"""
USERS = "angarium:$apr1$EjYSzMIB$pqonOWJgNlNNJaJkFIK5k1\n"


class Squid:
    """A running Squid, and the authority that it and the receivers have their certificates from."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = trustme.CA()
        self.plain, self.secure = free_port(), free_port()

    def profiles(self) -> Profiles:
        """The profiles that lead through it."""

        def proxy(url: str, password: str = "password", **members: Any) -> ProxySettings:
            file = f"{self.directory}/{password}"
            return ProxySettings(url=url, user="angarium", password_file=file, **members)

        plain = f"http://127.0.0.1:{self.plain}"
        return Profiles(
            {
                "here": proxy(plain),
                "there": proxy(plain, resolve="there"),
                "secure": proxy(f"https://squid.example:{self.secure}", tls="ours"),
                "stranger": proxy(plain, "wrong"),
                "nobody": ProxySettings(url=plain),
            },
            {"ours": TlsSettings(authorities=f"{self.directory}/ca.pem")},
        )


class Names:
    """Resolves the two names that the node knows; Squid knows another one."""

    async def resolve(self, host: str) -> Resolved:
        if host not in ("hook.example", "squid.example", "denied.example"):
            raise OSError("no such name")
        return Resolved(("127.0.0.1",), 60.0)


@pytest.fixture(scope="module")
def squid() -> Iterator[Squid]:
    directory = Path(tempfile.mkdtemp(prefix="squid-"))
    squid = Squid(directory)
    directory.chmod(0o777)  # Started by root, Squid becomes the user proxy.
    issued = squid.authority.issue_cert("squid.example")
    pem = issued.private_key_and_cert_chain_pem.bytes()
    texts = {
        "proxy.pem": pem, "ca.pem": squid.authority.cert_pem.bytes(), "users": USERS.encode(),
        "hosts": b"127.0.0.1 inside.example denied.example\n", "password": b"s3cret\n", "wrong": b"other\n",
    }  # fmt: skip
    for name, content in texts.items():
        (directory / name).write_bytes(content)
        (directory / name).chmod(0o644)
    text = CONFIGURATION.format(plain=squid.plain, secure=squid.secure, directory=directory, helper=HELPER)
    (directory / "squid.conf").write_text(text)
    process = subprocess.Popen([str(SQUID), "-N", "-f", str(directory / "squid.conf")])
    try:
        asyncio.run(_until_listening(squid, process))
        yield squid
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory)


async def _until_listening(squid: Squid, process: subprocess.Popen[bytes]) -> None:
    async def listens() -> bool:
        log = squid.directory / "cache.log"
        assert process.poll() is None, log.read_text() if log.exists() else "Squid ended"
        try:
            for port in (squid.plain, squid.secure):
                socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return False
        return True

    await until_true(listens, 0.05)


@pytest.fixture
async def transport(squid: Squid) -> AsyncIterator[Http1Transport]:
    names = Names()
    guard = Guard(allow_http=True, allow_networks=[ip_network("127.0.0.0/8")], resolver=names)
    transport = Http1Transport(EgressPaths(guard, squid.profiles(), resolver=names))
    yield transport
    await transport.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.start()
    yield receiver
    await receiver.stop()


async def post(transport: Http1Transport, url: str, proxy: str, tls: str | None = None) -> Response | Failure:
    return await transport.post(
        Request(
            receiver="acme.billing", target=parse_target(url), lines=(b"webhook-id: 1",), body=b"{}",
            timeout_s=30.0, may_start=lambda: True, profiles=ProfileNames(proxy, tls),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("proxy", "host"), [("here", "hook.example"), ("there", "inside.example"), ("secure", "hook.example")]
)
async def test_squid_leads_to_a_receiver_over_http(
    transport: Http1Transport, receiver: Receiver, proxy: str, host: str
) -> None:
    for _ in range(2):
        outcome = await post(transport, f"http://{host}:{receiver.port}/", proxy)
        assert isinstance(outcome, Response), outcome
        assert outcome.status == 200
    assert (receiver.connections, len(receiver.requests)) == (1, 2)
    assert receiver.requests[0].all(b"host") == [f"{host}:{receiver.port}".encode()]
    assert not [name for name, _ in receiver.requests[0].headers if name in (b"via", b"x-forwarded-for")]


@pytest.mark.parametrize(
    ("proxy", "host"), [("here", "hook.example"), ("there", "inside.example"), ("secure", "hook.example")]
)
async def test_squid_leads_to_a_receiver_over_tls(
    squid: Squid, transport: Http1Transport, proxy: str, host: str
) -> None:
    receiver = Receiver()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    squid.authority.issue_cert(host).configure_cert(context)
    await receiver.start(context)
    for _ in range(2):
        outcome = await post(transport, f"https://{host}:{receiver.port}/", proxy, "ours")
        assert isinstance(outcome, Response), outcome
    other = await post(transport, f"https://denied.example:{receiver.port}/", "here", "ours")
    assert isinstance(other, Failure)
    assert (
        other.kind is FailureKind.TLS
    )  # Squid was asked for an address, so its list of names did not count.
    assert len(receiver.requests) == 2
    await receiver.stop()


@pytest.mark.parametrize(
    ("proxy", "host", "why"),
    [
        ("there", "denied.example", "proxy there: answered 403 (ERR_ACCESS_DENIED"),
        ("there", "nowhere.invalid", "proxy there: answered 50"),
        ("stranger", "hook.example", "proxy stranger: did not accept our user and password (407)"),
        ("nobody", "hook.example", "proxy nobody: did not accept our user and password (407)"),
    ],
)
async def test_a_refusal_of_squid_is_the_proxys_failure(
    transport: Http1Transport, receiver: Receiver, proxy: str, host: str, why: str
) -> None:
    outcome = await post(transport, f"http://{host}:{receiver.port}/", proxy)
    assert isinstance(outcome, Failure)
    assert outcome.kind is FailureKind.PROXY
    assert outcome.detail.startswith(why)
    assert receiver.connections == 0


async def test_a_receiver_that_squid_cannot_reach_is_the_proxys_failure(transport: Http1Transport) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        outcome = await post(transport, f"http://hook.example:{bound.getsockname()[1]}/", "here")
    assert isinstance(outcome, Failure)
    assert outcome.kind is FailureKind.PROXY
    assert outcome.detail.startswith("proxy here: answered 503 (ERR_CONNECT_FAIL")
