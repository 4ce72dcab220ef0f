"""Measures the pages of the console: how long the server takes for each, when it is asked first and later.

`angarium api` runs in a process of its own. Times are those of a client on the same machine, from sending a
request to having the whole answer. The pages are asked for in turn, as people would, so that figures which
pages share have grown old, and are read again.
"""

import asyncio
import http.client
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from urllib.parse import urlencode

import click
from msgspec import Struct

from angarium.bench.console.crowd import TENANT_COUNT, WIDE_EVENT, Crowd, CrowdPlan, crowded, receiver_name
from angarium.bench.over_http.processes import check, serving_api
from angarium.bench.publishing import stored
from angarium.development.local_node import Setting
from angarium.operations.tokens.secret import new_secret
from streams.buckets.api_tokens import Token, TokenStore
from streams.installation.topology import Names

READY_TIMEOUT_S = 300.0
"""Time for reading the configurations of all receivers."""
PAGES_EVERY_S = 0.1
"""Pause between two requests of a browser."""
FORM = {"content-type": "application/x-www-form-urlencoded"}
_CSRF = re.compile(r'name="csrf" value="([^"]+)"')


class PagesPlan(Struct, frozen=True, kw_only=True):
    """A plan: the installation, and how often each page is asked for."""

    crowd: CrowdPlan = CrowdPlan()
    rounds: int = 50


class PageFigures(Struct, frozen=True):
    """One page: its size, the time of the first request, and of half and of 99 in 100 of the later ones."""

    path: str
    size: int
    first_ms: float
    p50_ms: float
    p99_ms: float


class ConsoleFigures(Struct, frozen=True, kw_only=True):
    """Results. `load`: processes that the machine had to run meanwhile, on average of a minute."""

    receivers: int
    attempts: int
    load: float
    pages: list[PageFigures]


class ServedConsole(Struct, frozen=True):
    """A console over a crowded installation: its port, the text of a token, and the paths of its pages."""

    port: int
    token: str
    paths: tuple[str, ...]


class PageClient:
    """A browser that has signed in, without what it draws."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._cookies: dict[str, str] = {}

    def sign_in(self, token: str) -> None:
        """Sign in. Raises click.ClickException if that fails."""
        found = _CSRF.search(self.ask("GET", "/console/sign-in")[1])
        form = urlencode({"csrf": found[1] if found else "", "token": token, "next": "/console"})
        status, text = self.ask("POST", "/console/sign-in", form)
        if status != http.client.SEE_OTHER:
            raise click.ClickException(f"signing in to the console failed: {text[:200]}")

    def ask(self, method: str, path: str, form: str | None = None) -> tuple[int, str]:
        """The status and the text of an answer."""
        cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        self._connection.request(method, path, form, {"cookie": cookies} | (FORM if form else {}))
        answer = self._connection.getresponse()
        for each in answer.headers.get_all("set-cookie", []):
            name, _, value = each.partition(";")[0].partition("=")
            self._cookies[name] = value
        return answer.status, answer.read().decode()

    def timed(self, path: str) -> tuple[float, int]:
        """The time that a page took, in milliseconds, and its size. Raises click.ClickException."""
        began_at = time.perf_counter()
        status, text = self.ask("GET", path)
        took_ms = (time.perf_counter() - began_at) * 1000
        if status != http.client.OK:
            raise click.ClickException(f"{path} answered {status}: {text[:200]}")
        return took_ms, len(text)


@asynccontextmanager
async def served_console(plan: CrowdPlan, on_step: Callable[[str], None]) -> AsyncIterator[ServedConsole]:
    """Makes a crowded installation, and serves its console. Raises click.ClickException."""
    check()
    async with crowded(plan, on_step) as crowd:
        on, secret = crowd.harness, new_secret()
        token = Token(
            tenant="*", scopes=("read", "manage", "operate"), hash=secret.hash, created_at=datetime.now(UTC)
        )
        stored(await TokenStore(on.js, Names()).create(secret.id, token))
        on_step("start the console")
        settings: dict[str, Setting] = {"nats": [on.url], "shards": on.shards, "ledger": crowd.ledger}
        async with serving_api(on.directory, settings, READY_TIMEOUT_S) as (port, _):
            yield ServedConsole(port, secret.text, paths_of(crowd))


def paths_of(crowd: Crowd) -> tuple[str, ...]:
    """The pages that are measured."""
    tenant, busy = receiver_name(0).split(".")
    other = receiver_name(1).replace(".", "/")
    return (
        "/console/",
        f"/console/?tenant={tenant}",
        "/console/receivers",
        f"/console/receivers?tenant={tenant}",
        f"/console/receivers?after=bench{TENANT_COUNT // 2}.r",
        "/console/receivers?q=99",
        f"/console/receivers/{tenant}/{busy}",
        f"/console/receivers/{tenant}/{busy}?failed=true",
        f"/console/receivers/{other}",
        "/console/events",
        f"/console/events/{tenant}/{crowd.event}",
        f"/console/events/{tenant}/{WIDE_EVENT}",
        f"/console/dead-letters?tenant={tenant}",
        f"/console/dead-letters/{tenant}/1",
        "/console/fleet",
    )


async def measure(plan: PagesPlan, on_step: Callable[[str], None]) -> ConsoleFigures:
    """Run the bench. Raises click.ClickException."""
    async with served_console(plan.crowd, on_step) as console:
        on_step(f"ask for {len(console.paths)} pages, {plan.rounds} times")
        client = PageClient(console.port)
        await asyncio.to_thread(client.sign_in, console.token)
        times: dict[str, list[float]] = {path: [] for path in console.paths}
        sizes = dict.fromkeys(console.paths, 0)
        for _ in range(plan.rounds + 1):
            for path in console.paths:
                took_ms, sizes[path] = await asyncio.to_thread(client.timed, path)
                times[path].append(took_ms)
                await asyncio.sleep(PAGES_EVERY_S)
        pages = [_figures(path, sizes[path], times[path]) for path in console.paths]
    return ConsoleFigures(
        receivers=plan.crowd.receivers, attempts=plan.crowd.attempts, load=os.getloadavg()[0], pages=pages
    )


def _figures(path: str, size: int, times: list[float]) -> PageFigures:
    first, later = times[0], sorted(times[1:])
    return PageFigures(path, size, first, later[len(later) // 2], later[len(later) * 99 // 100])
