"""The real `Wire`: a connection of nats-py, used for core NATS only.

nats-py reconnects by itself, but stops after some errors that a server may send at any time (an
expired user, a revoked permission). Then a new client takes its place and gets all subscriptions, so that the
wire ends only when it is closed.
"""

import asyncio
import logging
import re
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import nats.errors
from msgspec import Struct
from nats.aio.subscription import Subscription as NatsSubscription
from nkeys import NkeysError  # type: ignore[import-untyped]  # It brings none.

from streams.nats import inboxes
from streams.nats.answers import Put
from streams.nats.client import NatsClient
from streams.nats.errors import ConnectError, Disconnected
from streams.nats.wire import Message

log = logging.getLogger(__name__)

RECONNECT_WAIT_S = 0.25
"""Pause between two attempts to reach the same server; short, since every shard waits for a connection."""

CANCEL_AGAIN_AFTER_S = 0.1
REFUSALS_KNOWN_MAX = 32
"""Refusals that are logged once; of the requests that a user may not send, nodes repeat a few."""

_NOT_PERMITTED = re.compile(r'permissions violation for (?:publish|subscription) to "([^"]+)"', re.IGNORECASE)

PING_INTERVAL_S = 2
"""Interval of pings; a server that vanished silently is left at the third one, after two without an answer.

After 6 s at most, so that a node still has time to renew its lease of 10 s at another server.
"""


class ConnectOptions(Struct, frozen=True):
    """Options of a connection to NATS. Files are paths; user, password or token may be in the URL.

    - `inbox_prefix`: the beginning of the subjects to which answers are sent.
    - `second`: this process has another connection, which reports when the server is away.
    """

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    name: str = "angarium"
    credentials: str | None = None
    nkey: str | None = None
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    inbox_prefix: str = inboxes.DEFAULT_INBOX_PREFIX
    timeout_s: float = 5.0
    second: bool = False

    def files(self) -> list[str]:
        named = (self.credentials, self.nkey, self.tls_ca, self.tls_certificate, self.tls_key)
        return [path for path in named if path is not None]

    def wants_tls(self) -> bool:
        configured = self.tls_ca is not None or self.tls_certificate is not None
        return configured or any(server.startswith("tls://") for server in self.servers)


async def connect(options: ConnectOptions) -> "NatsWire":
    """Connect; raises `ConnectError` if no server can be reached within `timeout_s`."""
    wire = NatsWire(options)
    await wire.open()
    return wire


class NatsWire:
    """A `Wire` over nats-py, created by `connect`; see `streams.nats.wire.Wire`."""

    def __init__(self, options: ConnectOptions) -> None:
        self.closed = False
        self._options = options
        self._client = _client(options)
        self._listeners: list[Callable[[bool], None]] = []
        self._refusal_listeners: list[Callable[[str], None]] = []
        self._refusals: deque[str] = deque(maxlen=REFUSALS_KNOWN_MAX)
        self._subscriptions: list[_Subscribed] = []
        self._successor: asyncio.Task[None] | None = None
        self._errors: asyncio.Queue[Exception] = asyncio.Queue()
        self._opened = False
        self._reported = True
        self._lost_at = 0.0

    async def open(self) -> None:
        """Make the first connection; give up after one round of failures, since nats-py would try forever."""
        _check_files(self._options)
        attempt = asyncio.ensure_future(self._connect())
        failed = asyncio.ensure_future(self._one_round_of_errors())
        try:
            await asyncio.wait(
                {attempt, failed}, timeout=self._options.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            failure = attempt.exception() if attempt.done() else TimeoutError()
            if failed.done():
                failure = failed.result()
        finally:
            await _end(attempt)
            await _end(failed)
        if failure is not None:
            self.closed = True
            with suppress(AssertionError):  # nats-py raises it for a client that never began to connect.
                await self._client.close()
            self._client.abandon()
            raise ConnectError(_cannot_connect(self._options, _reason(failure))) from failure
        self._opened = True

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def max_payload(self) -> int:
        return self._client.max_payload

    @property
    def server_version(self) -> str:
        version = self._client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    async def publish(
        self, subject: str, data: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        await self._sent(self._client.publish(subject, data, reply, headers), subject)

    @property
    def unsent(self) -> int:
        return self._client.unsent

    def send(self, puts: Sequence[Put], replies: Sequence[str]) -> None:
        try:
            self._client.send(puts, replies)
        except nats.errors.ConnectionClosedError:
            if self.closed:
                raise Disconnected("the connection to NATS was closed") from None
        except nats.errors.OutboundBufferLimitError:
            log.debug("not connected: dropped %d messages", len(puts))

    async def publish_each(self, subjects: Sequence[str], data: bytes) -> None:
        await self._sent(self._client.publish_each(subjects, data), f"{len(subjects)} subjects")

    async def _sent(self, publishing: Awaitable[None], where: str) -> None:
        try:
            await publishing
        except nats.errors.ConnectionClosedError:
            if self.closed:
                raise Disconnected("the connection to NATS was closed") from None
        except nats.errors.OutboundBufferLimitError:
            # Core NATS promises nothing for a message that is sent without a connection; a caller that
            # needs an answer notices that none comes.
            log.debug("not connected and the buffer is full: dropped a message to %s", where)

    async def subscribe(
        self, subject: str, handler: Callable[[Message], None], *, headers: bool = True
    ) -> "_Subscribed":
        if self.closed:
            raise Disconnected("the connection to NATS was closed")
        subscription = _Subscribed(self, subject, handler, headers=headers)
        self._subscriptions.append(subscription)
        await subscription.move_to(self._client)
        return subscription

    def forget(self, subscription: "_Subscribed") -> None:
        self._subscriptions.remove(subscription)

    def on_change(self, listener: Callable[[bool], None]) -> None:
        self._listeners.append(listener)

    def on_forbidden(self, listener: Callable[[str], None]) -> None:
        self._refusal_listeners.append(listener)

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._successor is not None:
            await _end(self._successor)
        await self._client.close()

    async def _connect(self) -> None:
        options = self._options
        await self._client.connect(
            list(options.servers),
            name=options.name,
            tls=_tls_context(options),
            user_credentials=options.credentials,
            nkeys_seed=options.nkey,
            inbox_prefix=options.inbox_prefix,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # A float does.
            ping_interval=PING_INTERVAL_S,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )

    async def _one_round_of_errors(self) -> Exception:
        for _ in self._options.servers:
            error = await self._errors.get()
        return error

    async def _replace(self) -> None:
        """Replace a client that gave up; retries until it succeeds.

        Every obstacle may be temporary: a key file, for example, may just be being rotated.
        """
        last_why = ""
        while True:
            self._client = _client(self._options)
            try:
                await self._connect()
                for subscription in list(self._subscriptions):
                    await subscription.move_to(self._client)
            except Exception as error:
                self._client.abandon()
                why = _cannot_connect(self._options, _reason(error))
                log.log(logging.DEBUG if why == last_why else logging.WARNING, why)
                last_why = why
            else:
                if not self._client.is_closed:
                    self._report(True)
                    return
            await asyncio.sleep(RECONNECT_WAIT_S)

    def _report(self, connected: bool) -> None:
        """Call the listeners on a change; a client that gives up reports twice that it is not connected."""
        if connected == self._reported:
            return
        self._reported = connected
        if not self._options.second:
            self._log(connected)
        for listener in self._listeners:
            listener(connected)

    def _log(self, connected: bool) -> None:
        now = asyncio.get_running_loop().time()
        if connected:
            log.info("nats.back", extra={"after_s": round(now - self._lost_at, 1)})
        else:
            self._lost_at = now
            if not self.closed:
                log.warning("nats.lost", extra={"servers": [*map(_without_user, self._options.servers)]})

    async def _on_error(self, error: Exception) -> None:
        if refused := _NOT_PERMITTED.search(str(error)):
            self._refused(refused[1], str(error))
        elif self._opened:
            # An error that ends the connection is logged as its loss; failed reconnects are not logged.
            ends = isinstance(error, nats.errors.UnexpectedEOF | OSError)
            level = logging.WARNING if self._client.is_connected and not ends else logging.DEBUG
            log.log(level, "NATS: %s", str(error) or type(error).__name__)
        else:
            self._errors.put_nowait(error)

    def _refused(self, subject: str, text: str) -> None:
        """Log a refusal once: a repeated request is refused again."""
        log.log(logging.DEBUG if text in self._refusals else logging.WARNING, "NATS: %s", text)
        if text not in self._refusals:
            self._refusals.append(text)
        for listener in self._refusal_listeners:
            listener(subject)

    async def _on_disconnected(self) -> None:
        self._report(False)

    async def _on_reconnected(self) -> None:
        self._report(True)

    async def _on_closed(self) -> None:
        if not self.closed and (self._successor is None or self._successor.done()):
            self._successor = asyncio.ensure_future(self._replace())


class _Subscribed:
    """One subscription, which all successive clients carry on."""

    def __init__(
        self, wire: NatsWire, subject: str, handler: Callable[[Message], None], *, headers: bool
    ) -> None:
        self._wire = wire
        self._subject = subject
        self._headers = headers
        self._handler: Callable[[Message], None] | None = handler
        self._client: NatsClient | None = None
        self._current: NatsSubscription | None = None

    async def move_to(self, client: NatsClient) -> None:
        if self._client is client:
            return
        if client.is_closed:
            return  # The client has just given up; its successor will take over all subscriptions.
        self._client = client
        self._current = await client.listen(self._subject, self._on_message, headers=self._headers)

    async def unsubscribe(self) -> None:
        if self._handler is None:
            return
        self._handler = None
        self._wire.forget(self)
        if self._current is not None and self._client is not None and not self._client.is_closed:
            await self._current.unsubscribe()

    def _on_message(self, message: Message) -> None:
        if self._handler is not None:
            self._handler(message)


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel the task until it has ended.

    `asyncio.wait_for` of Python 3.11 may swallow the cancellation and return a connection that was made at
    that moment; nats-py, which did not notice the cancellation, would continue forever.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_AFTER_S)


def _client(options: ConnectOptions) -> NatsClient:
    return NatsClient(wants_tls=options.wants_tls())


def _check_files(options: ConnectOptions) -> None:
    """Check that the files can be read; nats-py reads some of them only when a server asks for them."""
    for path in options.files():
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            why = f"the file {path} cannot be read ({error.strerror}); check the paths and permissions of "
            raise ConnectError(_cannot_connect(options, f"{why}credentials and TLS files")) from None


def _tls_context(options: ConnectOptions) -> ssl.SSLContext | None:
    """The TLS context; None leaves it to nats-py: TLS with the system's CAs if server or URL ask for it."""
    if options.tls_ca is None and options.tls_certificate is None:
        return None
    context = ssl.create_default_context(cafile=options.tls_ca)
    if options.tls_certificate is not None:
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    return context


def _cannot_connect(options: ConnectOptions, reason: str) -> str:
    """The error message, with URLs that show no password."""
    return f"cannot connect to NATS at {', '.join(map(_without_user, options.servers))}: {reason}"


def _reason(failure: BaseException) -> str:
    """The reason why there is no connection, and what to do."""
    match failure:
        case ssl.SSLError():
            return f"TLS failed ({failure}); check the certificate, key and CA files"
        case nats.errors.SecureConnRequiredError():
            return (
                "TLS was requested, and the server does not offer it; enable it there, or do not request it"
            )
        case TimeoutError():
            return "no answer in time; check the address (--nats or ANGARIUM_NATS) and the network"
        case ConnectionRefusedError():
            return "nothing listens there; start nats-server, or give its address (--nats or ANGARIUM_NATS)"
        case OSError():
            return f"{failure.strerror or failure}; check the address (--nats or ANGARIUM_NATS)"
        case NkeysError() | ValueError() | TypeError():  # Credentials without a JWT raise TypeError.
            return f"a key cannot be used ({type(failure).__name__}); check the files of creds and nkey"
        case _ if "authorization" in str(failure).lower():
            return "the server refused our login; check the credentials, the nkey, or the user in the URL"
        case _:
            return str(failure) or type(failure).__name__


def _without_user(server: str) -> str:
    """The URL without its user; the scheme may be missing."""
    scheme, separator, rest = server.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]
