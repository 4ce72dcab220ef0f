"""`angarium listen`: answers each request as configured, verifies it, and shows it in one line."""

import asyncio
import errno
import signal
import time
from collections import deque
from collections.abc import Sequence

from msgspec import Struct, to_builtins

from actors.errors import AngariumError
from actors.times_as_text import instant_text
from angarium.delivery.signing import VerifyingKey
from angarium.development import signature_check
from angarium.development.handshakes import handshake_reply
from angarium.http_server import Received, Reply, serve, why_not_bound
from angarium.terminal import output

REMEMBERED_IDS_MAX = 4096
PATHS_MAX = 1024
BODY_SHOWN_MAX = 60
LOOPBACK = {"127.0.0.1": "127.0.0.0/8", "localhost": "127.0.0.0/8", "::1": "::1/128"}
"""The loopback hosts, and the network that a node must be allowed to reach for each."""


class ListenError(AngariumError):
    """The receiver cannot listen."""


class Behaviour(Struct, frozen=True, kw_only=True):
    """The behaviour of the receiver: `status` after `delay_s`, but every `fail_every`th time a failure."""

    status: int = 200
    delay_s: float = 0.0
    fail_every: int | None = None
    fail_status: int = 503
    retry_after: str | None = None

    def reply(self, number: int) -> Reply:
        """The answer to the request that is the `number`th, from 1 on."""
        if self.fail_every is None or number % self.fail_every:
            return Reply(status=self.status, delay_s=self.delay_s)
        headers = () if self.retry_after is None else (("retry-after", self.retry_after),)
        return Reply(status=self.fail_status, headers=headers, delay_s=self.delay_s)


class Shown(Struct, frozen=True, kw_only=True):
    """One request as it is shown. `verified` is None if no secret was given.

    `sequence`: the number, or the first one of a batch, which also has a `last_sequence`. `repeat`: a number
    was seen before; `missing`: how many numbers were left out before the first one.
    """

    at: str
    path: str
    event_id: str | None
    type: str | None
    sequence: int | None
    last_sequence: int | None
    attempt: int | None
    status: int
    verified: bool | None
    problems: list[str]
    repeat: bool
    missing: int
    size: int
    body: str


class Numbers:
    """The numbers that came on one path."""

    def __init__(self) -> None:
        self._highest = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=REMEMBERED_IDS_MAX)

    def record(self, first: int, last: int) -> tuple[bool, int]:
        """Record the numbers of a request, from the first to the last.

        Returns whether any of them came before, and how many they skip after the highest so far.
        """
        repeat = any(first <= end and begin <= last for begin, end in self._recent)
        missing = first - self._highest - 1 if self._highest else 0
        self._highest = max(self._highest, last)
        self._recent.append((first, last))
        return repeat, max(0, missing)


class Listening:
    """One run: `wrong` counts the requests with an invalid signature.

    `secrets`: what it answers handshakes with.
    """

    def __init__(
        self,
        behaviour: Behaviour,
        keys: Sequence[VerifyingKey],
        secrets: Sequence[str],
        *,
        whole_body: bool,
        as_json: bool,
    ) -> None:
        self.wrong = 0
        self.count = 0
        self._behaviour = behaviour
        self._keys = keys
        self._secrets = secrets
        self._whole_body = whole_body
        self._as_json = as_json
        self._numbers: dict[str, Numbers] = {}
        self._over = asyncio.Event()
        self._failure: Exception | None = None
        self._count_max: int | None = None

    async def run(self, host: str, port: int, count_max: int | None, *, or_another: bool = False) -> None:
        """Listen until `count_max` requests were answered, or until SIGINT or SIGTERM.

        Raises the error if a request cannot be shown: the reader of the output may be gone.
        """
        self._count_max = count_max
        server = await self._serve(host, port, or_another=or_another)
        bound = server.sockets[0].getsockname()
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        url = f"http://{shown}:{bound[1]}/"
        output.note(f"listening on {url}")
        output.note(f"to send events here: angarium receiver put acme.billing --url {url}")
        if host in LOOPBACK:
            output.note(
                f"angarium dev allows that; other nodes need --allow-http --allow-network {LOOPBACK[host]}"
            )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._over.set)
        await self._over.wait()
        server.close()  # Its connections end with us; Python 3.12 would wait until their clients do.
        if self._failure is not None:
            raise self._failure

    async def _serve(self, host: str, port: int, *, or_another: bool) -> asyncio.Server:
        """Listen on the port; with `or_another`, on a free one if it is in use."""
        try:
            return await serve(host, port, self._answer)
        except OSError as error:
            if or_another and error.errno == errno.EADDRINUSE:
                return await self._serve(host, 0, or_another=False)
            raise ListenError(
                f"cannot listen on {host}:{port} ({why_not_bound(error)}); choose another --port"
            ) from None

    def _answer(self, received: Received) -> Reply:
        if received.method != "POST":
            reply = handshake_reply(received, self._secrets)
            if reply is not None:
                output.note(f"answered a handshake ({received.method} {output.visible(received.path)})")
                return reply
            if "angarium-challenge" in received.headers:
                output.note(
                    "refused a handshake: it needs --secret, with the receiver's whsec_ or whs512_ secret"
                )
            return Reply(status=405, headers=(("allow", "POST"),))
        try:
            return self._show(received)
        except Exception as error:
            self._failure = error
            self._over.set()
            return Reply(status=500)

    def _show(self, received: Received) -> Reply:
        self.count += 1
        reply = self._behaviour.reply(self.count)
        shown = self._judge(received, reply.status)
        if self._as_json:
            output.say_json_line(to_builtins(shown))
        else:
            output.say(_line(shown, whole_body=self._whole_body))
        if self.count == self._count_max:
            # The answer is written first; a closing connection still sends its buffer.
            asyncio.get_running_loop().call_later(reply.delay_s, self._over.set)
        return reply

    def _numbers_of(self, path: str) -> Numbers:
        """The numbers of a path, marked as used; if there are many paths, the oldest is forgotten."""
        numbers = self._numbers[path] = self._numbers.pop(path) if path in self._numbers else Numbers()
        if len(self._numbers) > PATHS_MAX:
            del self._numbers[next(iter(self._numbers))]
        return numbers

    def _judge(self, received: Received, status: int) -> Shown:
        headers, now = received.headers, time.time()
        problems = signature_check.problems(headers, received.body, self._keys, now) if self._keys else []
        self.wrong += bool(problems)
        header = headers.get("angarium-sequence", "")
        sequences = signature_check.first_and_last(header)
        numbers = self._numbers_of(received.path)
        repeat, missing = (False, 0) if sequences is None else numbers.record(*sequences)
        return Shown(
            at=instant_text(now),
            path=received.path,
            event_id=headers.get("webhook-id"),
            type=headers.get("angarium-event"),
            sequence=sequences and sequences[0],
            last_sequence=sequences[1] if sequences and "-" in header else None,
            attempt=signature_check.number(headers.get("angarium-attempt")),
            status=status,
            verified=not problems if self._keys else None,
            problems=problems,
            repeat=repeat,
            missing=missing,
            size=len(received.body),
            body=received.body.decode("utf-8", "replace"),
        )


def _line(shown: Shown, *, whole_body: bool) -> str:
    notes = [
        *(["repeat"] if shown.repeat else []),
        *([f"{shown.missing} missing before"] if shown.missing else []),
        *shown.problems,
    ]
    verdict = {
        True: output.styled("verified", "green"),
        False: output.styled("WRONG", "red"),
        None: "unchecked",
    }
    number = "-" if shown.sequence is None else str(shown.sequence)
    if shown.last_sequence is not None:
        number += f"-{shown.last_sequence}"
    return "  ".join([
        shown.at[11:23],
        *([output.visible(shown.path)] if shown.path != "/" else []),
        f"#{number}",
        output.visible(shown.type or "-"),
        output.visible(shown.event_id or "-"),
        f"attempt {shown.attempt or '-'}",
        f"-> {shown.status}",
        verdict[shown.verified],
        *([output.styled("; ".join(notes), "yellow")] if notes else []),
        output.visible(shown.body) if whole_body else output.first_of(shown.body, BODY_SHOWN_MAX),
    ])  # fmt: skip
