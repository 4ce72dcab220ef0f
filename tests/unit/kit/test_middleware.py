"""Middleware guards its path, however it is spelled, and bounds what a request costs."""

import asyncio
import base64
import io
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from angarium_receiver import Answer, Arrival, MemoryNumbers, Receiver, asgi, ed25519, wsgi
from angarium_receiver.keys import HmacKey
from nacl.signing import SigningKey

from tests.unit.kit.receiving import BODY, environ, receiver
from tests.unit.kit.requests import NOW, SECRET, headers


def shop(environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [])
    return [b"unverified" if "angarium.delivery" not in environ else b"verified"]


async def test_asgi_with_a_root_path_is_still_guarded() -> None:
    """uvicorn --root-path /api, or a Mount: path includes the root, so all requests pass unverified."""
    passed: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope.get("angarium.delivery"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any:
        return {"type": "http.request", "body": b"forged"}

    async def send(message: Any) -> None: ...

    scope = {"type": "http", "method": "POST", "root_path": "/api", "path": "/api/webhooks", "headers": []}
    await asgi.AngariumMiddleware(app, receiver(), "/webhooks")(scope, receive, send)
    assert passed == [], "a forged request reached the application"


@pytest.mark.parametrize("path", ["/webhooks/", "//webhooks"])
def test_wsgi_a_slash_does_not_go_around(path: str) -> None:
    """Frameworks that route both alike (strict_slashes=False, merge_slashes) let forged requests in."""
    app = wsgi.AngariumMiddleware(shop, receiver(), "/webhooks")
    parts = app(environ(b"forged", "7", path) | {"HTTP_WEBHOOK_SIGNATURE": "v1,AAAA"}, lambda *_: None)
    assert b"".join(parts) != b"unverified"


def test_wsgi_a_chunked_body_is_read() -> None:
    """Behind a proxy that re-chunks, gunicorn sets wsgi.input_terminated and no length: always 401."""
    given = environ()
    del given["CONTENT_LENGTH"]
    given |= {"wsgi.input_terminated": True, "wsgi.input": io.BytesIO(BODY)}
    assert b"".join(wsgi.AngariumMiddleware(shop, receiver())(given, lambda *_: None)) == b"verified"


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000])
def test_wsgi_an_odd_length_is_refused(length: str) -> None:
    """isdigit() is true for ², and int() refuses 5,000 digits: 500 and a traceback."""
    statuses: list[str] = []
    app = wsgi.AngariumMiddleware(shop, receiver())
    list(app(environ() | {"CONTENT_LENGTH": length}, lambda status, _: statuses.append(status)))
    assert statuses[0][0] == "4"


def test_forged_signatures_cost_a_bounded_number_of_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ed25519 check takes milliseconds of the program's event loop, and needs no key to ask for."""
    checks: list[bytes] = []
    monkeypatch.setattr(ed25519, "verify", lambda public, signature, content: checks.append(signature))
    public = base64.b64encode(bytes(SigningKey(bytes(32)).verify_key)).decode()
    many = " ".join("v1a," + base64.b64encode(bytes([n]) * 64).decode() for n in range(32))
    known = Receiver(f"whpk_{public}", clock=lambda: NOW)
    found = known.receive("POST", headers(BODY) | {"webhook-signature": many}, BODY)
    assert isinstance(found, Answer)
    assert (found.status, len(checks)) == (401, 8)


def test_a_large_body_is_hashed_once_for_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []

    def sign(key: HmacKey, content: bytes) -> bytes:
        hashed.append(len(content))
        return b"\1"

    monkeypatch.setattr(HmacKey, "sign", sign)
    many = " ".join(["v1," + "A" * 43 + "="] * 32)
    known = Receiver(SECRET, "whsec_" + "A" * 32, clock=lambda: NOW)
    known.receive("POST", headers(BODY) | {"webhook-signature": many}, bytes(1 << 20))
    assert len(hashed) == 2


async def test_asgi_connections_of_other_kinds_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope["type"])

    async def nothing(*_: Any) -> Any: ...

    await asgi.AngariumMiddleware(app, receiver())({"type": "lifespan"}, nothing, nothing)
    assert passed == ["lifespan"]


async def test_asgi_applications_learn_after_the_body_that_the_client_left() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([(await receive())["type"], (await receive())["type"]])

    messages = [{"type": "http.request", "body": BODY}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None: ...

    pairs = [(name.encode(), value.encode()) for name, value in headers(BODY).items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": pairs}
    await asgi.AngariumMiddleware(app, receiver())(scope, receive, send)
    assert seen == ["http.request", "http.disconnect"]


class SlowNumbers(MemoryNumbers):
    """Numbers in a database that another process holds locked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.unlocked = threading.Event(), threading.Event()

    def look(self, numbers: Sequence[int]) -> Arrival:
        self.asked.set()
        assert self.unlocked.wait(30), "the loop was held up"
        return super().look(numbers)


async def accepting_shop(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def post_to(middleware: asgi.AngariumMiddleware) -> list[Any]:
    """Post one genuine delivery; returns the messages that the server gets."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": BODY}

    async def send(message: Any) -> None:
        sent.append(message)

    pairs = [(name.encode(), value.encode()) for name, value in headers(BODY).items()]
    await middleware({"type": "http", "method": "POST", "path": "/", "headers": pairs}, receive, send)
    return sent


async def test_asgi_a_locked_database_does_not_hold_up_the_loop() -> None:
    numbers = SlowNumbers()
    posting = asyncio.create_task(post_to(asgi.AngariumMiddleware(accepting_shop, receiver(numbers=numbers))))
    assert await asyncio.to_thread(numbers.asked.wait, 30)
    numbers.unlocked.set()
    assert (await posting)[0]["status"] == 200


async def test_asgi_a_request_that_is_cut_off_meanwhile_can_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers, ended = SlowNumbers(), threading.Event()
    guarded_by = receiver(numbers=numbers)
    guarded, done = asgi.AngariumMiddleware(accepting_shop, guarded_by), guarded_by.done

    def note(*values: Any) -> None:
        assert threading.current_thread() is not threading.main_thread(), "it waits for the database, too"
        done(*values)
        ended.set()

    posting = asyncio.create_task(post_to(guarded))
    assert await asyncio.to_thread(numbers.asked.wait, 30)
    monkeypatch.setattr(guarded_by, "done", note)
    posting.cancel()
    await asyncio.wait([posting])
    numbers.unlocked.set()
    assert await asyncio.to_thread(ended.wait, 30)
    assert (await post_to(guarded))[0]["status"] == 200


@pytest.mark.parametrize(("status", "has_length"), [(204, False), (401, True)])
async def test_an_answer_without_a_body_has_no_length(status: int, has_length: bool) -> None:
    """RFC 9110, 8.6: a 204 must not have one."""
    given = headers(BODY, None if status == 204 else "7")
    body = BODY if status == 204 else b"forged"
    names: list[str] = []
    parts = wsgi.AngariumMiddleware(shop, receiver())(
        {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
        }
        | {"HTTP_" + name.upper().replace("-", "_"): value for name, value in given.items()},
        lambda _, pairs: names.extend(name for name, _ in pairs),
    )
    assert list(parts) != []
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": pairs}
    await asgi.AngariumMiddleware(shop_asgi, receiver())(scope, receive, send)
    assert sent[0]["status"] == status
    assert ("content-length" in names) is has_length
    assert (b"content-length" in dict(sent[0]["headers"])) is has_length


async def shop_asgi(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nothing comes through")
