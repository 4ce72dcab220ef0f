"""The HTTP session of the exporters: what a collector answers is limited, in bytes and in time.

`requests` reads any answer to its end, and unpacks it; its timeout begins again with each byte.
"""

import io
import socket
import time
from http.client import HTTPMessage, HTTPResponse
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection

ANSWER_MAX = 64 << 10
"""Bytes of an answer with its headers. Collectors answer a few bytes."""


class _LimitedAnswer(io.RawIOBase):
    """The bytes of an answer: at most `ANSWER_MAX`, and none is asked for after `timeout_s`."""

    def __init__(self, raw: io.RawIOBase, timeout_s: float) -> None:
        self._raw = raw
        self._left = ANSWER_MAX
        self._until = time.monotonic() + timeout_s

    def readable(self) -> bool:
        """True, always."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read some bytes. Raises OSError beyond the limits."""
        if not self._left:
            raise OSError(f"the answer is longer than {ANSWER_MAX} bytes")
        if time.monotonic() > self._until:
            raise TimeoutError("the answer is not complete in time")
        count = self._raw.readinto(memoryview(buffer)[: self._left])
        self._left -= count or 0
        return count

    def close(self) -> None:
        """Close the bytes below as well."""
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """A limited answer, which is not unpacked: a few bytes may become very many."""

    msg: HTTPMessage

    def __init__(self, sock: socket.socket, *args: Any, **members: Any) -> None:
        super().__init__(sock, *args, **members)
        self.fp = io.BufferedReader(_LimitedAnswer(self.fp.detach(), sock.gettimeout() or 0.0))

    def begin(self) -> None:
        """Read the status and the headers."""
        super().begin()
        del self.msg["content-encoding"]


class _Connection(HTTPConnection):
    response_class = _Response


class _TlsConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **members: Any) -> None:
        """Make the pools of connections to collectors."""
        super().init_poolmanager(*args, **members)
        _limit(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **members: Any) -> PoolManager:
        """The pools of connections to a proxy."""
        manager: PoolManager = super().proxy_manager_for(*args, **members)
        _limit(manager)
        return manager


def _limit(manager: PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}


class CollectorSession(requests.Session):
    """A session whose answers are limited. A redirect is a failure: OTLP follows none."""

    def __init__(self) -> None:
        super().__init__()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter())

    def send(self, request: requests.PreparedRequest, **members: Any) -> requests.Response:
        """Send a request. Raises requests.RequestException."""
        response = super().send(request, **members | {"allow_redirects": False})
        if 300 <= response.status_code < 400:
            raise requests.TooManyRedirects(f"the collector answered {response.status_code}, a redirect")
        return response
