"""A receiver answers all but the work itself, also as ASGI and WSGI middleware."""

import asyncio
import base64
import hmac
import io
import json
import sqlite3
from collections.abc import Iterable
from typing import Any

import pytest
from angarium_receiver import (
    Answer,
    Delivery,
    FixedWindow,
    InvalidKey,
    MemoryNumbers,
    MemoryQueue,
    Receiver,
    SqliteNumbers,
    asgi,
    wsgi,
)
from angarium_receiver.receiver import BODY_MAX

from tests.unit.kit.requests import NOW, SECRET, headers

BODY = b'{"order": 7}'
CHALLENGE = "c-1_" + "A" * 39
KEY = base64.b64decode(SECRET.removeprefix("whsec_"))


def receiver(*secrets: str, **members: Any) -> Receiver:
    return Receiver(*(secrets or (SECRET,)), clock=lambda: NOW, ticks=lambda: 0.0, **members)


def post(known: Receiver, numbers: str | None = "7") -> Answer | Delivery:
    return known.receive("POST", headers(BODY, numbers), BODY)


def status(found: Answer | Delivery) -> int:
    assert isinstance(found, Answer)
    return found.status


def test_a_genuine_delivery_is_handed_over() -> None:
    assert isinstance(post(receiver()), Delivery)


def test_a_ping_and_what_is_not_genuine_are_answered() -> None:
    known = receiver()
    assert status(post(known, None)) == 204
    assert known.receive("POST", headers(BODY), b"other") == Answer(
        401, {"content-type": "text/plain; charset=utf-8"}, b"webhook-signature is wrong"
    )
    assert known.receive("PUT", headers(BODY), BODY) == Answer(405, {"allow": "POST"})


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_repeat_is_answered_without_work_once_the_first_succeeded(kind: str) -> None:
    connection = sqlite3.connect(":memory:")
    known = receiver(numbers=MemoryNumbers() if kind == "memory" else SqliteNumbers(connection))
    first = post(known)
    assert isinstance(first, Delivery)
    known.done(first, 503)
    again = post(known)
    assert isinstance(again, Delivery)
    known.done(again, 204)
    assert status(post(known)) == 204
    assert isinstance(post(known, "8"), Delivery)
    connection.close()


def test_a_delivery_that_comes_too_fast_gets_429_and_is_not_a_repeat() -> None:
    known = receiver(limiter=FixedWindow(1, 60.0), numbers=MemoryNumbers())
    assert isinstance(post(known), Delivery)
    refused = post(known, "8")
    assert isinstance(refused, Answer)
    assert (refused.status, refused.headers["retry-after"]) == (429, "60")
    assert status(known.receive("POST", headers(BODY), b"forged")) == 401


def test_a_forged_request_takes_nothing_from_the_limit() -> None:
    known = receiver(limiter=FixedWindow(1, 60.0))
    for _ in range(3):
        assert status(known.receive("POST", headers(BODY), b"forged")) == 401
    assert isinstance(post(known), Delivery)


def test_a_queue_answers_202_until_it_is_full() -> None:
    queue = MemoryQueue(1)
    known = receiver(queue=queue, numbers=MemoryNumbers())
    assert status(post(known)) == 202
    full = post(known, "8")
    assert isinstance(full, Answer)
    assert (full.status, full.headers["retry-after"]) == (503, "1")
    done: list[Delivery] = []
    queue.work_one(done.append)
    assert [each.numbers for each in done] == [(7,)]
    assert status(post(known)) == 204
    assert status(post(known, "8")) == 202


def test_a_challenge_is_answered_with_the_proof() -> None:
    answer = receiver().receive("GET", {"Angarium-Challenge": CHALLENGE}, b"")
    assert isinstance(answer, Answer)
    proof = json.loads(answer.body)
    expected = hmac.digest(KEY, f"angarium.handshake.{CHALLENGE}.{proof['nonce']}".encode(), "sha256")
    assert (answer.status, base64.b64decode(proof["hmac"])) == (200, expected)
    other = receiver().receive("GET", {"angarium-challenge": CHALLENGE}, b"")
    assert isinstance(other, Answer)
    assert json.loads(other.body)["nonce"] != proof["nonce"]


@pytest.mark.parametrize(
    "challenge",
    [
        "",
        "a b" * 20,
        "é" * 40,
        "x" * 257,
        "x" * 31,
        "1800000000." + "x" * 40,
        "1800000000".zfill(32),
        "1800000000e0".zfill(32),
        "0x" + "6b49d200".zfill(32),
        "_" + "1" * 32,
    ],
)
def test_an_odd_challenge_is_refused(challenge: str) -> None:
    assert status(receiver().receive("GET", {"angarium-challenge": challenge}, b"")) == 400


def test_a_receiver_with_a_public_key_alone_proves_nothing() -> None:
    public = receiver("whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=")
    assert status(public.receive("GET", {"angarium-challenge": CHALLENGE}, b"")) == 404


def test_an_origin_gets_consent() -> None:
    request = {"WebHook-Request-Origin": "angarium"}
    found = receiver(per_minute=120).receive("OPTIONS", request, b"")
    assert found == Answer(
        200, {"allow": "POST", "webhook-allowed-origin": "angarium", "webhook-allowed-rate": "120"}
    )
    unlimited = receiver().receive("OPTIONS", request, b"")
    assert isinstance(unlimited, Answer)
    assert unlimited.headers["webhook-allowed-rate"] == "*"
    assert status(receiver().receive("OPTIONS", {"webhook-request-origin": "a\r\nb"}, b"")) == 400


def test_a_receiver_needs_a_secret() -> None:
    with pytest.raises(ValueError, match="needs a secret"):
        Receiver()
    with pytest.raises(InvalidKey):
        Receiver("nonsense")


async def over_asgi(
    app: asgi.Application, method: str, path: str, given: dict[str, str], chunks: list[bytes]
) -> tuple[int, bytes]:
    messages = [{"type": "http.request", "body": each, "more_body": True} for each in chunks]
    messages.append({"type": "http.request"})
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    pairs = [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
    await app({"type": "http", "method": method, "path": path, "headers": pairs}, receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


async def shop(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads the body again, and shows what it found."""
    body = (await receive())["body"]
    shown = repr((scope.get("angarium.delivery", "none"), body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": shown})


async def test_asgi_applications_get_genuine_deliveries_and_the_body() -> None:
    app = asgi.AngariumMiddleware(shop, receiver(numbers=MemoryNumbers()), "/hook")
    code, shown = await over_asgi(app, "POST", "/hook", headers(BODY), [BODY[:3], BODY[3:]])
    assert code == 200
    assert b"numbers=(7,)" in shown
    assert repr(BODY).encode() in shown
    assert await over_asgi(app, "POST", "/hook", headers(BODY), [BODY]) == (204, b"")
    assert (await over_asgi(app, "POST", "/hook", headers(BODY), [b"x"]))[0] == 401
    assert await over_asgi(app, "POST", "/other", {}, [b"x"]) == (200, b"('none', b'x')")


async def test_asgi_bodies_are_bounded_and_clients_may_leave() -> None:
    app = asgi.AngariumMiddleware(shop, receiver(), body_max=4)
    assert (await over_asgi(app, "POST", "/", {}, [b"123", b"45"]))[0] == 413
    messages = asyncio.Queue[Any]()
    messages.put_nowait({"type": "http.disconnect"})
    await app({"type": "http", "method": "POST", "path": "/", "headers": []}, messages.get, messages.put)
    assert messages.empty()


def over_wsgi(
    app: wsgi.Application, method: str, path: str, given: dict[str, str], body: bytes, **more: str
) -> tuple[str, bytes]:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": given.get("content-type", ""),
        "wsgi.input": io.BytesIO(body + b"the next request"),
    }
    environ |= {"HTTP_" + name.upper().replace("-", "_"): value for name, value in given.items()} | more
    statuses: list[str] = []
    parts = app(environ, lambda status, headers: statuses.append(status))
    return statuses[0], b"".join(parts)


def wsgi_shop(environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [])
    return [repr((environ.get("angarium.delivery", "none"), environ["wsgi.input"].read())).encode()]


def test_wsgi_applications_get_genuine_deliveries_and_the_body() -> None:
    app = wsgi.AngariumMiddleware(wsgi_shop, receiver(numbers=MemoryNumbers()), "/hook")
    code, shown = over_wsgi(app, "POST", "/hook", headers(BODY), BODY)
    assert code == "200 OK"
    assert b"numbers=(7,)" in shown
    assert repr(BODY).encode() in shown
    assert over_wsgi(app, "POST", "/hook", headers(BODY), BODY) == ("204 No Content", b"")
    assert over_wsgi(app, "POST", "/hook", headers(BODY), b"x")[0] == "401 Unauthorized"
    assert over_wsgi(app, "POST", "/other", {}, b"")[0] == "200 OK"


@pytest.mark.parametrize(("length", "code"), [("5", "413"), ("-1", "400"), ("x", "400"), ("", "401")])
def test_wsgi_bodies_are_bounded(length: str, code: str) -> None:
    app = wsgi.AngariumMiddleware(wsgi_shop, receiver(), body_max=4)
    found, _ = over_wsgi(app, "POST", "/", {}, b"", CONTENT_LENGTH=length)
    assert found.startswith(code)


def test_a_proof_is_always_by_hmac_sha256() -> None:
    key = bytes(range(64))
    long = receiver("whs512_" + base64.b64encode(key).decode())
    answer = long.receive("GET", {"angarium-challenge": "c" * 32}, b"")
    assert isinstance(answer, Answer)
    proof = json.loads(answer.body)
    signed = f"angarium.handshake.{'c' * 32}.{proof['nonce']}".encode()
    assert base64.b64decode(proof["hmac"]) == hmac.digest(key, signed, "sha256")
    assert len(proof["nonce"]) >= 22


@pytest.mark.parametrize("code", [199, 300, 404, 429, 500])
def test_a_delivery_that_was_answered_with_no_success_comes_again(code: int) -> None:
    known = receiver(numbers=MemoryNumbers())
    first = post(known)
    assert isinstance(first, Delivery)
    known.done(first, code)
    assert isinstance(post(known), Delivery)


def test_the_answers_of_a_queue_have_the_headers_of_the_limit() -> None:
    known = receiver(queue=MemoryQueue(1), limiter=FixedWindow(9, 60.0))
    for code, number in ((202, "1"), (503, "2")):
        found = post(known, number)
        assert isinstance(found, Answer)
        assert found.status == code
        assert "ratelimit" in found.headers


def test_bodies_may_be_as_large_as_angarium_sends_them() -> None:
    assert BODY_MAX >= 272 * 1024
