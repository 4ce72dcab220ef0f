"""One nats-server a module, and for each test an installation and an API of its own."""

from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

from angarium.api import server
from angarium.api.api_state import ApiState
from angarium.connecting import Access, open_jetstream
from angarium.operations.tokens.create import CreatedToken, NewToken, create
from angarium.settings import Settings
from streams.installation.setup import setup
from streams.nats.answers import Stored, StoredMessage
from streams.nats.jetstream import JetStream
from streams.server.embedded import EmbeddedServer
from streams.stores.receivers import Receivers
from streams.stores.tokens import Scope
from tests.command_line import COMMAND_LINE
from tests.contract.waiting import until

_tests = count(1)
SHARDS = 2
MAX_BODY = 16 << 10


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nats(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    directory: Path = tmp_path_factory.mktemp("nats")
    async with EmbeddedServer(directory, port=0) as server:
        yield server


class Api:
    """A process of the API, in this one, and a client of it. `js` is a connection of the test's own."""

    def __init__(self, js: JetStream, settings: Settings, url: str, live: ApiState) -> None:
        self.to = Access(js, settings)
        self.js = js
        self.names = self.to.names
        self.url = url
        self.state = live

    async def token(
        self, tenant: str = "acme", scopes: Sequence[Scope] = ("publish",), **members: Any
    ) -> CreatedToken:
        """A token that the API knows already."""
        made = await create(self.to, NewToken(tenant=tenant, scopes=tuple(scopes), **members))
        assert isinstance(made, CreatedToken)
        await until(lambda: self.state.tokens.get(made.id) is not None)
        return made

    async def client(self, tenant: str = "acme", scopes: Sequence[Scope] = ("publish",)) -> httpx.AsyncClient:
        """A client with a new token."""
        return self.client_with((await self.token(tenant, scopes)).text)

    def client_with(self, token: str) -> httpx.AsyncClient:
        """A client with that token."""
        headers = {"authorization": f"Bearer {token}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30)

    async def receiver(self, receiver: str, **members: Any) -> None:
        """Put a receiver."""
        raw = msgspec.json.encode({"url": "https://example.com/"} | members)
        assert isinstance(await Receivers(self.js, self.names).put(receiver, raw), Stored)

    async def stored(self, stream: str) -> list[StoredMessage]:
        """All messages of a stream."""
        return (await self.js.read(stream, ">", 1)).messages


def problem(answer: httpx.Response, status: int, name: str) -> str:
    """Check that it is that problem, and names neither command nor flag; returns its detail."""
    assert answer.status_code == status, answer.text
    assert not COMMAND_LINE.search(answer.text), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["type"]) == (status, f"urn:angarium:problem:{name}")
    assert body["title"]
    return str(body["detail"])


@pytest.fixture
def settings(nats: EmbeddedServer, tmp_path: Path) -> Settings:
    """Those of an installation that no other test uses; its ledger is not there yet."""
    return Settings(
        nats=(nats.url,), prefix=f"a{next(_tests)}", shards=SHARDS, max_body=MAX_BODY, max_bytes=4 << 20,
        ledger=f"sqlite:///{tmp_path / 'ledger.db'}",
    )  # fmt: skip


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    async with open_jetstream(settings) as js:
        await setup(js, Access(js, settings).of)
        here = server.bound("127.0.0.1", 0)
        async with server.served(settings, here) as live:
            yield Api(js, settings, server.url(here), live)
