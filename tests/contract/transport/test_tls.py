"""TLS is verified against the name, never the address, before any byte of the request is sent."""

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from angarium.delivery.connections.connect import default_tls
from angarium.delivery.connections.resolver import Resolved
from angarium.delivery.http_exchange.transport import FailureKind, Transport
from tests.contract.transport.conftest import MakeTransport, answered, failed, post_to
from tests.contract.transport.receiver import Peer, Receiver, polite
from tests.support.waiting import until

SOON_S = 0.15
NAME = "hook.example"


class ToLoopback:
    """Every name is here."""

    async def resolve(self, host: str) -> Resolved:
        return Resolved(("127.0.0.1",), 30.0)


class TlsReceiver(Receiver):
    """Serves whatever certificate it is given, and notes what name it was asked for."""

    def __init__(self, certificate: trustme.LeafCert) -> None:
        super().__init__()
        self.names: list[str | None] = []
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.sni_callback = self._note
        certificate.configure_cert(self.context)

    def _note(self, _: ssl.SSLObject | ssl.SSLSocket, name: str | None, __: ssl.SSLContext) -> None:
        self.names.append(name)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def transport(make_transport: MakeTransport, authority: trustme.CA) -> Transport:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return make_transport(resolver=ToLoopback(), tls=context)


@pytest.fixture
async def receiver(authority: trustme.CA) -> AsyncIterator[TlsReceiver]:
    receiver = TlsReceiver(authority.issue_cert(NAME, "127.0.0.1"))
    await receiver.start(receiver.context)
    yield receiver
    await receiver.stop()


async def test_a_verified_receiver_is_asked_by_its_name_over_a_kept_connection(
    transport: Transport, receiver: TlsReceiver
) -> None:
    for _ in range(3):
        answered(await post_to(transport, f"https://{NAME}:{receiver.port}/"))
    assert receiver.names == [NAME]
    assert receiver.requests[0].all(b"host") == [b"hook.example:%d" % receiver.port]
    assert (receiver.connections, len(receiver.requests)) == (1, 3)


async def test_a_certificate_may_be_for_an_address(transport: Transport, receiver: TlsReceiver) -> None:
    answered(await post_to(transport, f"https://127.0.0.1:{receiver.port}/"))


async def test_a_large_request_and_answer(transport: Transport, receiver: TlsReceiver) -> None:
    receiver.answers(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n" + b"x" * 60000)
    outcome = answered(await post_to(transport, f"https://{NAME}:{receiver.port}/", body=b"y" * 262144))
    assert len(outcome.body) == 60000
    assert receiver.requests[0].body == b"y" * 262144


async def test_bytes_that_come_before_a_request_end_the_kept_connection(
    transport: Transport, receiver: TlsReceiver
) -> None:
    kept: list[Peer] = []
    rest: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.answer()
        kept.append(peer)
        rest.append(await peer.until_closed())

    receiver.plays(script, polite)
    answered(await post_to(transport, f"https://{NAME}:{receiver.port}/"))
    await kept[0].push_record(b"HTTP/1.1 299 Forged\r\ncontent-length: 0\r\n\r\n")
    assert answered(await post_to(transport, f"https://{NAME}:{receiver.port}/")).status == 200
    await until(lambda: rest == [b""])
    assert (receiver.connections, len(receiver.requests)) == (2, 2)


async def test_an_answer_that_comes_before_the_request_is_written_counts_and_is_the_last(
    transport: Transport, receiver: TlsReceiver
) -> None:
    async def early(peer: Peer) -> None:
        await peer.first_byte()
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await peer.until_closed()

    receiver.plays(early, polite)
    url = f"https://{NAME}:{receiver.port}/"
    assert answered(await post_to(transport, url, body=b"x" * (8 << 20))).status == 413
    assert answered(await post_to(transport, url)).status == 200
    assert receiver.connections == 2


async def refused(transport: Transport, receiver: Receiver, name: str = NAME) -> None:
    asked = False

    def may_start() -> bool:
        nonlocal asked
        asked = True
        return True

    failure = failed(await post_to(transport, f"https://{name}:{receiver.port}/", may_start=may_start))
    assert failure.kind is FailureKind.TLS, failure
    assert receiver.requests == []
    assert not asked


async def test_a_wrong_name_is_refused(transport: Transport, receiver: TlsReceiver) -> None:
    await refused(transport, receiver, "other.example")


async def test_an_unknown_authority_is_refused(make_transport: MakeTransport, receiver: TlsReceiver) -> None:
    await refused(make_transport(resolver=ToLoopback()), receiver)


async def test_a_certificate_that_signs_itself_is_refused(
    transport: Transport, authority: trustme.CA, tmp_path: Path
) -> None:
    itself = trustme.CA()
    pem = tmp_path / "itself.pem"
    pem.write_bytes(itself.private_key_pem.bytes() + itself.cert_pem.bytes())
    receiver = TlsReceiver(authority.issue_cert(NAME))
    receiver.context.load_cert_chain(pem)
    await receiver.start(receiver.context)
    await refused(transport, receiver)
    await receiver.stop()


async def test_an_expired_certificate_is_refused(transport: Transport, authority: trustme.CA) -> None:
    now = datetime.now(UTC)
    expired = authority.issue_cert(
        NAME, not_before=now - timedelta(days=3), not_after=now - timedelta(days=1)
    )
    receiver = TlsReceiver(expired)
    await receiver.start(receiver.context)
    await refused(transport, receiver)
    await receiver.stop()


async def test_a_receiver_without_tls_is_refused(transport: Transport) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await peer.until_closed()

    receiver = Receiver()
    receiver.plays(script)
    await receiver.start()
    await refused(transport, receiver)
    await receiver.stop()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_handshake_that_is_broken_off(transport: Transport, how: str) -> None:
    async def script(peer: Peer) -> None:
        if how == "reset":
            peer.reset()

    receiver = Receiver()
    receiver.plays(script)
    await receiver.start()
    await refused(transport, receiver)
    await receiver.stop()


async def test_a_handshake_that_never_ends_meets_the_deadline(transport: Transport) -> None:
    closed: list[bytes] = []

    async def script(peer: Peer) -> None:
        closed.append(await peer.until_closed())

    receiver = Receiver()
    receiver.plays(script)
    await receiver.start()
    outcome = await post_to(transport, f"https://{NAME}:{receiver.port}/", timeout_s=SOON_S)
    assert failed(outcome).kind is FailureKind.TIMEOUT
    await transport.close()
    await receiver.stop()


async def test_an_old_version_of_tls_is_refused(transport: Transport, authority: trustme.CA) -> None:
    old = TlsReceiver(authority.issue_cert(NAME))
    old.context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.context.maximum_version = ssl.TLSVersion.TLSv1_1
    await old.start(old.context)
    await refused(transport, old)
    await old.stop()


async def test_no_keys_are_written_down_in_any_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    context = default_tls()
    assert context.keylog_filename != str(keys)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert not keys.exists()
