"""Serves `/healthz`, `/readyz` and `/metrics` at an address, each from a function.

A node has one of its own. Several nodes under one supervisor (`angarium.workers`) have one together.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from actors.errors import AngariumError
from angarium import quantities
from angarium.http_server import Answer, Pending, Received, Reply, serve, why_not_bound

TEXT_TYPE = "text/plain; charset=utf-8"
CONNECTIONS_MAX = 64
"""Connections to one address: probes and scrapers need a few, and the process needs its descriptors."""
EXPOSITION_TYPE = "text/plain; version=0.0.4; charset=utf-8"
log = logging.getLogger(__name__)

A = TypeVar("A", bound=Reply | Pending)


class MonitorFailed(AngariumError):
    """The address cannot be listened on; the text names it and the remedy."""


@asynccontextmanager
async def listening(address: str, answer: Answer) -> AsyncIterator[None]:
    """Answer requests at the address. Raises MonitorFailed."""
    host, port = quantities.parse_address(address)
    try:
        server = await serve(host, port, answer, CONNECTIONS_MAX)
    except OSError as error:
        why = why_not_bound(error)
        raise MonitorFailed(
            f"monitor: cannot listen on {address} ({why}); give another address, or stop what uses it"
        ) from None
    name, port = server.sockets[0].getsockname()[:2]
    log.info("monitor.listening", extra={"host": name, "port": port})
    try:
        yield
    finally:
        server.close()


def page_of(received: Received, pages: Mapping[str, Callable[[], A]]) -> A | Reply:
    """The answer to one request: that of the page that it asks for."""
    page = pages.get(received.path.partition("?")[0])
    if page is None:
        return text(404, "not found; try /healthz, /readyz or /metrics")
    if received.method != "GET":
        return Reply(405, (("allow", "GET"),))
    try:
        return page()
    except Exception:
        return broken(received.path)


def broken(path: str) -> Reply:
    """The answer to a request that met a defect; logs the exception that is being handled."""
    log.exception("monitor.broken", extra={"path": path})
    return text(500, "internal error; see the log")


def text(status: int, line: str) -> Reply:
    """A page of one line."""
    return Reply(status, (("content-type", TEXT_TYPE),), f"{' '.join(line.split())}\n".encode())


def exposition(metrics: bytes, content_type: str = EXPOSITION_TYPE) -> Reply:
    """A page of metrics."""
    return Reply(200, (("content-type", content_type),), metrics)
