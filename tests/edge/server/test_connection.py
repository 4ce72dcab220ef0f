"""The real connection under failures: servers that die and come back, and servers that were never there."""

import asyncio
import gc
import os
import re
import socket
import ssl
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, cast
from unittest.mock import Mock

import nkeys  # type: ignore[import-untyped]
import pytest
import trustme

from streams.buckets.follower import Follower
from streams.installation.topology import Names, consumer_for_claim
from streams.nats.answers import Stored, Unanswered
from streams.nats.client import NatsClient
from streams.nats.connection import ConnectOptions, NatsWire, connect
from streams.nats.errors import ConnectError
from streams.nats.jetstream import JetStream
from streams.reading.pull import Puller
from streams.reading.pull_room import PullRoom
from streams.server import binary
from streams.server.embedded import EmbeddedServer
from tests.support.free_ports import free_port
from tests.support.waiting import KeptMessages, until, until_true

NEVER_S = 3600.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats", port=free_port(), sync_interval="always") as server:
        yield server


@pytest.fixture
async def wire(server: EmbeddedServer) -> AsyncIterator[NatsWire]:
    wire = await connect(ConnectOptions(servers=(server.url,)))
    yield wire
    await wire.close()


@pytest.fixture
async def js(wire: NatsWire) -> AsyncIterator[JetStream]:
    js = JetStream(wire)
    await js.start()
    await js.stream_create({"name": "S", "subjects": ["s.>", "angarium.deliver.*.*.*"], "allow_direct": True})
    yield js
    await js.stop()


async def test_no_subject_that_the_server_takes_stops_the_reading(
    server: EmbeddedServer, wire: NatsWire
) -> None:
    """Any producer may publish to such a subject, and its stream delivers the message repeatedly."""
    seen, told = KeptMessages(), changes(wire)
    await wire.subscribe("s.>", seen)
    await wire.publish("s.first")
    await seen.first(1)
    host, _, port = server.url.removeprefix("nats://").partition(":")
    _, raw = await asyncio.open_connection(host, int(port))
    raw.write(b'CONNECT {"headers":true,"verbose":false}\r\n')
    for subject in (b"s.\xff\xfe", b"s.\x0b\x0c\x01", b"s.\xe2\x80\xa8", b"s." + b"x" * 3900, b"s.last"):
        raw.write(b"PUB " + subject + b" 4\r\nbody\r\n")
        raw.write(b"HPUB " + subject + b" 12 16\r\nNATS/1.0\r\n\r\nbody\r\n")
    await raw.drain()
    subjects = [message.subject for message in (await seen.first(11))[1:]]
    assert subjects[::2] == subjects[1::2]
    assert subjects[::2] == ["s.\\xff\\xfe", "s.\x0b\x0c\x01", "s.\u2028", "s." + "x" * 3900, "s.last"]
    assert told == []
    raw.close()
    await raw.wait_closed()


def changes(wire: NatsWire) -> list[bool]:
    seen: list[bool] = []
    wire.on_change(seen.append)
    return seen


@pytest.mark.parametrize("error", [RuntimeError("the handler is closed"), ConnectionResetError("lost")])
async def test_a_connection_that_has_just_broken_is_written_to_without_harm(
    wire: NatsWire, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The event loop knows of it a moment before nats-py does; what is written between the two is not heard
    of again, as ever in core NATS, but raises nothing. Subscriptions hold."""
    told, seen, gone = changes(wire), KeptMessages(), await wire.subscribe("gone", KeptMessages())
    client = wire._client
    assert client._flusher_task is not None
    assert client._transport is not None
    client._flusher_task.cancel()
    await asyncio.wait({client._flusher_task})
    monkeypatch.setattr(client._transport, "writelines", Mock(side_effect=error))
    await wire.publish("nowhere")
    await wire.subscribe("kept", seen)
    await gone.unsubscribe()
    assert wire.is_connected
    monkeypatch.undo()
    client._transport.close()  # type: ignore[no-untyped-call]
    await until(lambda: told == [False, True])
    await wire.publish("kept")
    await seen.first(1)


@pytest.mark.parametrize("killed", [True, False])
async def test_a_connection_continues_when_its_server_returns(
    server: EmbeddedServer, wire: NatsWire, js: JetStream, killed: bool
) -> None:
    """Pending requests end at once, listeners are notified, subscriptions and streams continue."""
    seen, told = KeptMessages(), changes(wire)
    await wire.subscribe("asked", seen)
    asked = asyncio.ensure_future(js.publish("asked", b"never answered", timeout_s=NEVER_S))
    await seen.first(1)
    await js.publish("s.a", b"before")
    await (server.kill() if killed else server.stop())
    assert isinstance(await asked, Unanswered)
    await until(lambda: told == [False])
    assert not wire.is_connected
    assert isinstance(await js.publish("s.a", b"while away", timeout_s=NEVER_S), Unanswered)
    await server.start()
    await until(lambda: told == [False, True])

    async def stored() -> bool:
        return isinstance(await js.publish("s.a", b"after"), Stored)

    await until_true(stored)
    info = await js.stream_info("S")
    assert info is not None
    assert info.last == 2
    await wire.publish("asked", b"again")
    assert (await seen.first(2))[1].data == b"again"


async def test_a_puller_sees_the_gap_and_a_follower_catches_up(
    server: EmbeddedServer, wire: NatsWire, js: JetStream
) -> None:
    names = Names()
    await js.consumer_create("S", consumer_for_claim("c", names.deliveries_of(7), 1))
    taken, gaps, followed = KeptMessages(), list[str](), list[bytes]()

    puller = Puller(
        js, "S", "c", room=PullRoom(), on_message=lambda message, _: taken(message), on_gap=gaps.append
    )
    follower = Follower(js, "S", "s.key", lambda message: followed.append(message.data), every_s=NEVER_S)
    await puller.start()
    await follower.start()
    await js.publish(names.delivery(7, "a.b"), b"1")
    await js.publish("s.key", b"1")
    await taken.first(1)
    await until(lambda: followed == [b"1"])
    await server.kill()
    await until(lambda: gaps == ["the connection was lost"])
    await server.start()
    await until(lambda: wire.is_connected)
    other = await connect(ConnectOptions(servers=(server.url,)))
    await other.publish("s.key", b"2")
    await other.close()
    await until(lambda: followed == [b"1", b"2"])
    assert len(gaps) == 1
    await puller.stop()
    await follower.stop()


async def test_a_client_that_gave_up_is_replaced(wire: NatsWire, js: JetStream) -> None:
    seen, told = KeptMessages(), changes(wire)
    await wire.subscribe("x", seen)
    dropped = await wire.subscribe("x", KeptMessages())
    await wire._client.close()
    await until(lambda: told == [False, True])
    await dropped.unsubscribe()
    await wire.publish("x", b"1")
    await seen.first(1)
    assert await js.publish("s.a", b"") == Stored(1)
    assert wire.is_connected


async def test_a_client_that_gave_up_with_something_unsent_is_replaced_too(wire: NatsWire) -> None:
    """At an error of the server nats-py sends the rest before it says that it has closed."""
    seen, told = KeptMessages(), changes(wire)
    await wire.subscribe("x", seen)
    client = wire._client
    client._pending.append(b"PING\r\n")
    client._pending_data_size += 6
    assert client._flusher_task is not None
    client._flusher_task.cancel()  # It ends at the same error.
    client.abandon()
    await client._process_err("'maximum control line exceeded'")
    await until(lambda: told == [False, True])
    await wire.publish("x", b"1")
    await seen.first(1)
    assert client.is_closed


async def test_a_client_that_gave_up_is_replaced_when_there_is_a_server_again(
    server: EmbeddedServer, wire: NatsWire
) -> None:
    seen, told = KeptMessages(), changes(wire)
    await server.stop()
    await until(lambda: told == [False])
    await wire._client.close()
    late = await wire.subscribe("late", seen)
    await wire.publish("late", b"buffered or dropped")
    await server.start()
    await until(lambda: told[-1])
    seen.messages.clear()
    await wire.publish("late", b"now")
    await until(lambda: b"now" in [message.data for message in seen.messages])
    assert [message.data for message in seen.messages].count(b"now") == 1
    await late.unsubscribe()


def seed() -> bytes:
    made: bytes = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    return made


@pytest.fixture
async def keyed(server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[tuple[NatsWire, Path]]:
    """A connection that reads a key at each start, and the file of the key."""
    file = tmp_path / "user.nk"
    file.write_bytes(seed())
    wire = await connect(ConnectOptions(servers=(server.url,), nkey=str(file)))
    yield wire, file
    await wire.close()


async def test_a_key_file_that_is_being_written_is_read_again(
    keyed: tuple[NatsWire, Path], caplog: pytest.LogCaptureFixture
) -> None:
    wire, file = keyed
    told = changes(wire)
    file.write_bytes(b"half a key")
    await wire._client.close()
    await until(lambda: "a key cannot be used" in caplog.text)
    file.write_bytes(seed())
    await until(lambda: told == [False, True])


@pytest.fixture
async def knowing(tmp_path: Path) -> AsyncIterator[tuple[Path, Callable[[], Awaitable[Process]], str]]:
    """The file of a key, what starts a server that knows only that key, and its address."""
    file, port = tmp_path / "user.nk", free_port()
    file.write_bytes(seed())
    known = nkeys.from_seed(bytearray(file.read_bytes())).public_key.decode()
    config = tmp_path / "nats.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\nauthorization {{ users: [ {{ nkey: {known} }} ] }}\n')
    started: list[Process] = []

    async def start() -> Process:
        started.append(await serve(config, port))
        return started[-1]

    yield file, start, f"127.0.0.1:{port}"
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_key_that_is_being_written_while_nats_comes_back_is_read_again(
    knowing: tuple[Path, Callable[[], Awaitable[Process]], str], caplog: pytest.LogCaptureFixture
) -> None:
    file, start, place = knowing
    first = await start()
    wire = await connect(ConnectOptions(servers=(place,), nkey=str(file)))
    told, whole = changes(wire), file.read_bytes()
    file.write_bytes(whole[:20])
    first.kill()
    await first.wait()
    await start()
    await until(lambda: "a key cannot be used" in caplog.text)
    file.write_bytes(whole)
    await until(lambda: told == [False, True])
    await wire.close()


async def test_a_client_that_fails_right_after_connecting_is_replaced(wire: NatsWire) -> None:
    """A user's credentials may expire at this very moment."""
    told, seen, first = changes(wire), KeptMessages(), wire._client
    subscribed = await wire.subscribe("x", seen)
    moves = subscribed.move_to

    async def move_to(client: NatsClient) -> None:
        del subscribed.move_to
        await client.close()
        await moves(client)

    subscribed.move_to = move_to  # type: ignore[method-assign]
    await first.close()
    await until(lambda: told == [False, True] and wire.is_connected)
    await wire.publish("x", b"1")
    await seen.first(1)


async def test_a_connection_closes_while_there_is_no_server(server: EmbeddedServer) -> None:
    wire = await connect(ConnectOptions(servers=(server.url,)))
    await server.stop()
    await until(lambda: not wire.is_connected)
    await wire.close()


class TestFailedConnections:
    """Failures to connect, each in one sentence that says what to do."""

    async def test_a_port_without_a_listener_is_refused(self) -> None:
        place = f"127.0.0.1:{free_port()}"
        for url in (f"nats://user:secret@{place}", f"user:secret@{place}", f"secret@{place}"):
            with pytest.raises(
                ConnectError, match=rf"{re.escape(place)}.*nothing listens there; start nats-server"
            ) as error:
                await connect(ConnectOptions(servers=(url,)))
            assert "secret" not in str(error.value)

    async def test_one_server_of_two_is_enough(self, server: EmbeddedServer) -> None:
        wire = await connect(ConnectOptions(servers=(f"nats://127.0.0.1:{free_port()}", server.url)))
        assert wire.is_connected
        await wire.close()

    async def test_a_server_that_never_speaks_is_named(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            url = f"nats://127.0.0.1:{mute.getsockname()[1]}"
            with pytest.raises(ConnectError, match="no answer in time; check the address"):
                await connect(ConnectOptions(servers=(url,), timeout_s=0.2))

    async def test_a_host_without_an_address_is_named(self) -> None:
        with pytest.raises(ConnectError, match=r"nowhere\.invalid.*check the address"):
            await connect(ConnectOptions(servers=("nats://nowhere.invalid:4222",)))

    async def test_a_missing_file_is_named(self, server: EmbeddedServer) -> None:
        for options in (
            ConnectOptions(servers=(server.url,), credentials="/no/such.creds"),
            ConnectOptions(servers=(server.url,), nkey="/no/such.nk"),
            ConnectOptions(servers=(server.url,), tls_ca="/no/ca.pem"),
        ):
            with pytest.raises(ConnectError, match=r"the file /no/\S+ cannot be read \(No such .*; check"):
                await connect(options)

    async def test_files_that_hold_no_keys_are_refused_with_what_to_check(
        self, server: EmbeddedServer, tmp_path: Path
    ) -> None:
        garbage = tmp_path / "garbage"
        garbage.write_text("no key at all\n")
        for options, sentence in (
            (ConnectOptions(servers=(server.url,), nkey=str(garbage)), "a key cannot be used"),
            (ConnectOptions(servers=(server.url,), tls_ca=str(garbage)), "TLS failed"),
        ):
            with pytest.raises(ConnectError, match=f"{sentence} .*; check the "):
                await connect(options)

    async def test_tls_that_the_server_does_not_offer_is_named(
        self, server: EmbeddedServer, tmp_path: Path
    ) -> None:
        authority = tmp_path / "ca.pem"
        trustme.CA().cert_pem.write_to_path(authority)
        for options in (
            ConnectOptions(servers=(server.url,), tls_ca=str(authority)),
            ConnectOptions(servers=(server.url.replace("nats://", "tls://"),)),
        ):
            with pytest.raises(ConnectError, match="TLS was requested, and the server does not offer it"):
                await connect(options)


async def serve(config: Path, port: int) -> Process:
    """A server of that configuration, which listens."""
    program = await asyncio.to_thread(binary.find_nats_server)
    process = await asyncio.create_subprocess_exec(program, "-c", config, stderr=asyncio.subprocess.DEVNULL)

    async def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    await until_true(listens)
    return process


class _Certificates(NamedTuple):
    """The files of a server on 127.0.0.1 and of its authority."""

    certificate: Path
    key: Path
    ca: Path

    def for_server(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context


def _certificates(place: Path) -> _Certificates:
    authority = trustme.CA()
    files = _Certificates(place / "cert.pem", place / "key.pem", place / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(files.certificate)
    issued.private_key_pem.write_to_path(files.key)
    authority.cert_pem.write_to_path(files.ca)
    return files


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """A server that wants TLS and a user: its address without either, and the file of its authority."""
    files = _certificates(tmp_path)
    port = free_port()
    config = tmp_path / "nats.conf"
    config.write_text(
        f"""
        listen: "127.0.0.1:{port}"
        tls {{ cert_file: "{files.certificate}", key_file: "{files.key}" }}
        authorization {{ user: "us", password: "secret" }}
        """
    )
    process = await serve(config, port)
    yield f"127.0.0.1:{port}", files.ca
    process.kill()
    await process.wait()


class TestServerWithTlsAndUsers:
    async def test_a_guarded_server_takes_a_user_that_it_knows(self, guarded: tuple[str, Path]) -> None:
        place, ca = guarded
        wire = await connect(ConnectOptions(servers=(f"tls://us:secret@{place}",), tls_ca=str(ca)))
        assert wire.is_connected
        await wire.close()

    async def test_a_guarded_server_refuses_others(self, guarded: tuple[str, Path]) -> None:
        place, ca = guarded
        for user in ("", "us:wrong@", "token@"):
            with pytest.raises(ConnectError, match="refused our login; check the credentials") as error:
                await connect(ConnectOptions(servers=(f"tls://{user}{place}",), tls_ca=str(ca)))
            assert "wrong" not in str(error.value)

    async def test_a_guarded_server_that_does_not_hang_up_is_left_at_once(self, tmp_path: Path) -> None:
        files = _certificates(tmp_path)
        ended = asyncio.Event()

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b'INFO {"version":"2.12.0","tls_required":true,"max_payload":1024}\r\n')
            await writer.start_tls(files.for_server())
            await reader.readuntil(b"PING\r\n")
            transport = cast(asyncio.Transport, writer.transport)
            transport.pause_reading()  # What says goodbye over TLS waits for the other's.
            writer.write(b"-ERR 'Authorization Violation'\r\n")
            try:
                await ended.wait()
            finally:
                transport.abort()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectError, match="refused our login"):
            await connect(ConnectOptions(servers=(f"tls://us:wrong@{place}",), tls_ca=str(files.ca)))
        gc.collect()  # Which tells of connections that are still open, and pytest fails for it.
        ended.set()
        server.close()
        await server.wait_closed()

    async def test_a_guarded_server_is_not_trusted_without_its_authority(
        self, guarded: tuple[str, Path]
    ) -> None:
        place, _ = guarded
        with pytest.raises(ConnectError, match=r"TLS failed .*check the certificate"):
            await connect(ConnectOptions(servers=(f"tls://us:secret@{place}",)))
