"""A receiver, and WSGI requests for it."""

import io
from typing import Any

from angarium_receiver import Receiver

from tests.unit.kit.requests import NOW, SECRET, headers

BODY = b'{"order": 7}'


def receiver(**members: Any) -> Receiver:
    return Receiver(SECRET, clock=lambda: NOW, ticks=lambda: 0.0, **members)


def environ(body: bytes = BODY, numbers: str = "7", path: str = "/", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": path,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    given = headers(body, numbers).items()
    return found | {"HTTP_" + name.upper().replace("-", "_"): value for name, value in given} | more
