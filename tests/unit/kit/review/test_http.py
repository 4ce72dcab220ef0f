"""Paths, lengths and headers."""

import io
from collections.abc import Iterable
from typing import Any

import pytest
from angarium_receiver import Receiver, asgi, wsgi

from tests.unit.kit.requests import NOW, SECRET, headers
from tests.unit.kit.review.receiving import BODY, environ, receiver


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


def test_signatures_are_not_a_load() -> None:
    """32 forged v1a signatures: the work of one request that needs no key."""
    import base64
    import time

    from angarium_receiver import ed25519
    from nacl.signing import SigningKey

    public = bytes(SigningKey(bytes(32)).verify_key)
    made = SigningKey(bytes(32)).sign(b"other").signature
    given = headers(BODY) | {"webhook-signature": " ".join(["v1a," + base64.b64encode(made).decode()] * 32)}
    known = Receiver("whpk_" + base64.b64encode(public).decode(), clock=lambda: NOW)
    start = time.process_time()
    known.receive("POST", given, BODY)
    took = time.process_time() - start
    start = time.process_time()
    ed25519.verify(public, made, b"x")
    once = time.process_time() - start
    assert took < 12 * once, f"{took * 1000:.0f} ms, {once * 1000:.1f} ms for one signature"


def test_a_large_body_is_hashed_once_for_each_key() -> None:
    import time

    body = bytes(1 << 20)
    given = headers(BODY) | {"webhook-signature": " ".join(["v1," + "A" * 43 + "="] * 32)}
    known = Receiver(SECRET, "whsec_" + "A" * 32, clock=lambda: NOW)
    start = time.process_time()
    known.receive("POST", given, body)
    took = time.process_time() - start
    given["webhook-signature"] = "v1," + "A" * 43 + "="
    start = time.process_time()
    known.receive("POST", given, body)
    once = time.process_time() - start
    assert took < 4 * once, f"{took * 1000:.0f} ms, {once * 1000:.1f} ms with one signature"
