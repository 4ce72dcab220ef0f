"""An installation with a node, a ledger, a sink, and the API with the console around it."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from msgspec.structs import replace

from angarium.access import Access, open_jetstream
from angarium.api import server
from angarium.console import admission
from angarium.console.app import Console
from angarium.ledger.follow import follow
from angarium.node.app import open_node
from angarium.settings import Settings
from streams.buckets.api_tokens import Scope
from streams.installation.setup import setup
from streams.server.embedded import EmbeddedServer
from tests.edge.api.conftest import SHARDS, Api
from tests.edge.api.conftest import settings as settings_fixture
from tests.support.fleet.sink import Sink
from tests.support.plain_http import plain_client
from tests.support.waiting import until, until_true

settings = settings_fixture
PAGES_PER_S = 10_000.0
"""Tests ask more often than people, until something is there."""
CSRF = re.compile(r'name="csrf" value="([^"]+)"')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nats(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    directory: Path = tmp_path_factory.mktemp("nats")
    async with EmbeddedServer(directory, port=0) as server:
        yield server


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test ask for pages as often as it likes."""
    monkeypatch.setattr(admission, "SESSION_PAGES_PER_S", PAGES_PER_S)
    monkeypatch.setattr(admission, "ADDRESS_PAGES_PER_S", PAGES_PER_S)


class Browser:
    """A client with cookies that fills in forms as a browser would."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.page = ""

    async def get(self, path: str, status: int = 200, **headers: str) -> str:
        """The text of a page."""
        answer = await self.client.get(path, headers=headers)
        assert answer.status_code == status, answer.text
        self.page = answer.text
        return self.page

    async def until(self, path: str, text: str, status: int = 200) -> str:
        """The page, once it has this text and this status."""

        async def is_shown() -> bool:
            answer = await self.client.get(path)
            self.page = answer.text
            return text in self.page and answer.status_code == status

        await until_true(is_shown)
        return self.page

    async def post(self, path: str, fields: dict[str, Any], status: int = 303) -> httpx.Response:
        """Send a form of the last page."""
        answer = await self.client.post(path, data={"csrf": self.csrf} | fields)
        assert answer.status_code == status, answer.text
        return answer

    @property
    def csrf(self) -> str:
        """The text against forgery of the last page."""
        found = CSRF.search(self.page)
        assert found is not None, self.page
        return found[1]

    async def sign_in(self, token: str) -> None:
        """Sign in."""
        await self.get("/console/sign-in")
        await self.post("/console/sign-in", {"token": token, "next": "/console"})


@asynccontextmanager
async def opened_console(settings: Settings) -> AsyncIterator[Api]:
    """An API with the console around it."""
    async with open_jetstream(settings) as js:
        await setup(js, Access(js, settings).installation)
        here = server.bind_socket("127.0.0.1", 0)
        async with server.served(settings, here, around=Console) as live:
            yield Api(js, settings, server.url(here), live)


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    async with opened_console(settings) as api:
        yield api


@pytest.fixture
async def owned(api: Api) -> AsyncIterator[Api]:
    """With a node that owns all shards and may post to this machine."""
    settings = replace(api.to.settings, node="a", ttl_s=2.0, allow_http=True, allow_networks=("127.0.0.0/8",))
    async with open_node(settings) as node:
        await until(lambda: len(node.owned) == SHARDS)
        yield api


@pytest.fixture
async def watched(owned: Api) -> AsyncIterator[Api]:
    """With a ledger that follows."""
    following = asyncio.create_task(follow(owned.to.settings, second=True))
    yield owned
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


async def post_orders(api: Api, name: str, first: int, count: int) -> None:
    """Publish so many events for a receiver of acme, `order-<number>` from a number on."""
    path = f"/v1/tenants/acme/receivers/{name}/events/order.created"
    async with await api.client("acme", ["publish"]) as publisher:
        for number in range(first, first + count):
            known = {"angarium-id": f"order-{number}"}
            answer = await publisher.post(path, json={"order": number}, headers=known)
            assert answer.status_code == 202


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink() as sink:
        yield sink


@asynccontextmanager
async def visitor(api: Api) -> AsyncIterator[Browser]:
    """A browser that has not signed in."""
    async with plain_client(base_url=api.url, timeout=30) as client:
        yield Browser(client)


@asynccontextmanager
async def signed_in(
    api: Api, tenant: str = "acme", scopes: Sequence[Scope] = ("read", "manage")
) -> AsyncIterator[Browser]:
    """A browser that has signed in with a new token."""
    token = await api.token(tenant, scopes)
    async with visitor(api) as browser:
        await browser.sign_in(token.text)
        yield browser
