"""`angarium listen`: its answers, what it shows of signatures, numbers and bodies, and how it ends."""

import base64
import hashlib
import hmac
import http.client
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from standardwebhooks.webhooks import Webhook

from tests.support.processes.commands import PATIENCE_S, Running, Terminal, line_with

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"x" * 32).decode()

Listen = Callable[..., "Listener"]


class Listener:
    """A running `angarium listen`, and a connection to it."""

    def __init__(self, process: Running) -> None:
        self.process = process
        host, _, port = (
            line_with(process.stderr, "listening on").strip("/\n").rpartition("//")[2].rpartition(":")
        )
        line_with(process.stderr, "other nodes need --allow-http --allow-network 127.0.0.0/8")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)

    def post(self, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
        self.connection.request("POST", "/", body, headers)
        answer = self.connection.getresponse()
        answer.read()
        return answer

    def shown(self) -> Any:
        return msgspec.json.decode(self.process.stdout.readline())

    def end(self) -> tuple[int | None, str]:
        """Waits for the end; returns the status and stderr."""
        self.connection.close()
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in out + err
        return self.process.returncode, err


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Listen]:
    terminal = Terminal(tmp_path, "nats://127.0.0.1:1")
    started: list[Listener] = []

    def start(*arguments: str) -> Listener:
        started.append(Listener(terminal.start("listen", "--port", "0", *arguments)))
        return started[-1]

    yield start
    for each in started:
        each.connection.close()
        with each.process:
            each.process.kill()


def signed(
    body: bytes, sequence: int | str = 1, *, event: str = "e1", at: float | None = None
) -> dict[str, str]:
    """The headers of a delivery, signed by the Standard Webhooks library and by hand."""
    when = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    own = hmac.digest(key, f"{event}.{sequence}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": event,
        "webhook-timestamp": str(int(when.timestamp())),
        "webhook-signature": Webhook(SECRET).sign(event, when, body.decode()),
        "angarium-sequence": str(sequence),
        "angarium-signature": f"v1,{base64.b64encode(own).decode()}",
        "angarium-event": "order.created",
        "angarium-attempt": "1",
    }


def test_a_delivery_is_verified_and_shown(listen: Listen) -> None:
    listener = listen("--json", "--secret", OTHER, "--secret", SECRET)
    assert listener.post(b'{"a": 1}', signed(b'{"a": 1}', 7)).status == 200
    shown = listener.shown()
    assert shown.pop("at").endswith("Z")
    assert shown == {
        "path": "/", "event_id": "e1", "type": "order.created", "sequence": 7, "last_sequence": None,
        "attempt": 1, "status": 200, "verified": True, "problems": [], "repeat": False, "missing": 0,
        "size": 8, "body": '{"a": 1}',
    }  # fmt: skip
    listener.process.send_signal(signal.SIGINT)
    assert listener.end() == (0, "")


def test_a_delivery_is_verified_with_a_public_key(listen: Listen) -> None:
    """Both signatures are made by another library than the one that verifies them."""
    private = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
    public = base64.b64encode(private.public_key().public_bytes_raw()).decode()
    headers = signed(b"{}")
    for name, number in (
        ("webhook-signature", "webhook-timestamp"),
        ("angarium-signature", "angarium-sequence"),
    ):
        signature = base64.b64encode(private.sign(f"e1.{headers[number]}.{{}}".encode())).decode()
        headers[name] += f" v1a,{signature}"
    listener = listen("--json", "--secret", f"whpk_{public}", "--count", "2")
    listener.post(b"{}", headers)
    assert listener.shown()["problems"] == []
    listener.post(b"[]", headers)
    assert listener.shown()["problems"] == ["webhook-signature is wrong", "angarium-signature is wrong"]
    assert listener.end()[0] == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"webhook-signature": "v1,AAAA"}, "webhook-signature is wrong"),
        ({"webhook-signature": ""}, "webhook-signature is missing"),
        ({"angarium-signature": "v1,AAAA"}, "angarium-signature is wrong"),
        ({"angarium-sequence": "8"}, "angarium-signature is wrong"),
        ({"angarium-sequence": "x"}, "angarium-signature: no usable angarium-sequence"),
        ({"webhook-timestamp": "1" * 5000}, "webhook-signature: no usable webhook-timestamp"),
        ({"webhook-id": ""}, "webhook-signature: no usable webhook-id"),
    ],
)
def test_a_problem_is_reported_and_ends_with_1(listen: Listen, change: dict[str, str], problem: str) -> None:
    listener = listen("--json", "--secret", SECRET, "--count", "1")
    assert listener.post(b"{}", signed(b"{}", 7) | change).status == 200
    shown = listener.shown()
    assert shown["verified"] is False
    assert problem in shown["problems"]
    assert listener.end() == (1, "angarium: 1 of 1 requests were not signed by --secret\n")


def test_a_handshake_that_needs_a_secret_is_noted(listen: Listen) -> None:
    listener = listen()
    listener.connection.request("GET", "/", headers={"angarium-challenge": "c" * 40})
    assert listener.connection.getresponse().status == 405
    assert "refused a handshake: it needs --secret" in line_with(listener.process.stderr, "handshake")


def test_an_old_timestamp_is_reported(listen: Listen) -> None:
    listener = listen("--json", "--secret", SECRET)
    listener.post(b"{}", signed(b"{}", at=1_700_000_000))
    assert "s old" in listener.shown()["problems"][0]


def test_repeats_and_gaps_are_marked(listen: Listen) -> None:
    listener = listen("--json")
    for sequence in (3, 3, 6, 4):
        listener.post(b"{}", signed(b"{}", sequence))
    marks = [
        (each["repeat"], each["missing"], each["verified"]) for each in (listener.shown() for _ in range(4))
    ]
    assert marks == [(False, 0, None), (True, 0, None), (False, 2, None), (False, 0, None)]


def test_a_batch_is_shown_with_its_first_and_last_number(listen: Listen) -> None:
    listener = listen("--json", "--secret", SECRET)
    for numbers in ("3-5", "8-9", "5-6", "8-8"):
        listener.post(b"{}", signed(b"{}", numbers))
    shown = [listener.shown() for _ in range(4)]
    assert [(each["sequence"], each["last_sequence"]) for each in shown] == [(3, 5), (8, 9), (5, 6), (8, 8)]
    assert [(each["repeat"], each["missing"]) for each in shown] == [
        (False, 0), (False, 2), (True, 0), (True, 0)
    ]  # fmt: skip
    assert all(each["verified"] for each in shown)


def test_failures_come_as_often_as_they_were_ordered(listen: Listen) -> None:
    listener = listen("--fail-every", "2", "--fail-status", "429", "--retry-after", "3", "--status", "204")
    answers = [listener.post(b"{}", signed(b"{}", n)) for n in (1, 2, 3)]
    assert [answer.status for answer in answers] == [204, 429, 204]
    assert answers[1].headers["retry-after"] == "3"


def test_people_get_one_line_a_request_and_no_control_characters(listen: Listen) -> None:
    listener = listen("--secret", SECRET, "--count", "1")
    body = b'{"clear": "\x1b[2J"}'
    listener.post(body, signed(body, 7))
    out, _ = listener.process.communicate(timeout=PATIENCE_S)
    assert "#7  order.created  e1  attempt 1  -> 200  verified" in out
    assert "\\x1b[2J" in out
    assert out.count("\n") == 1


def test_people_see_both_numbers_of_a_batch(listen: Listen) -> None:
    listener = listen("--count", "1")
    listener.post(b"{}", signed(b"{}", "7-19"))
    out, _ = listener.process.communicate(timeout=PATIENCE_S)
    assert "  #7-19  " in out


def test_only_posts_are_events(listen: Listen) -> None:
    listener = listen("--json")
    listener.connection.request("GET", "/")
    answer = listener.connection.getresponse()
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_bytes_that_are_not_a_request_end_the_connection(listen: Listen) -> None:
    """An endless request is cut off before it fills the memory."""
    listener = listen()
    for request_bytes, status in (
        (b"HELLO\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nx: " + b"y" * 80_000, b"413"),
        (b"POST /" + b"y" * 80_000, b"413"),
    ):
        listener.connection.connect()
        listener.connection.sock.sendall(request_bytes)
        assert listener.connection.sock.recv(4096).startswith(b"HTTP/1.1 " + status)
        listener.connection.close()


def test_listen_ends_when_its_output_is_closed(listen: Listen) -> None:
    """An event that was not shown is not accepted, nor is it called too large, which would make it a dead
    letter: `angarium listen | head` is over with its first line."""
    listener = listen()
    assert listener.process.stdout is not None
    listener.process.stdout.close()
    assert listener.post(b"{}", signed(b"{}")).status == 500
    assert listener.process.wait(PATIENCE_S) == 141


def test_a_port_in_use_is_reported(listen: Listen, tmp_path: Path) -> None:
    port = listen().connection.port
    error = Terminal(tmp_path, "nats://127.0.0.1:1").failed("listen", "--port", str(port))
    assert f"cannot listen on 127.0.0.1:{port} (the address is in use); choose another --port" in error


def test_without_a_port_it_takes_9000_or_a_free_one_and_says_where_to_send(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "nats://127.0.0.1:1")
    with socket.socket() as taken:
        with suppress(OSError):  # Another process may have it.
            taken.bind(("127.0.0.1", 9000))
            taken.listen()
        with terminal.start("listen") as process:
            url = line_with(process.stderr, "listening on").split()[-1]
            assert f"receiver put acme.billing --url {url}" in line_with(
                process.stderr, "to send events here"
            )
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
    assert not url.endswith(":9000/")
