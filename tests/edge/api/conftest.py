"""One nats-server a module; each test has its own installation and API."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

from actors.machine.facts import Burial
from angarium.access import Access, open_jetstream
from angarium.api import server
from angarium.api.api_state import ApiState
from angarium.operations.tokens.create import CreatedToken, NewToken, create
from angarium.settings import Settings
from streams.buckets.api_tokens import Scope
from streams.buckets.stored_configurations import StoredConfigurations
from streams.dead_letters.bury import DeadLetterWriter
from streams.installation.setup import setup
from streams.nats.answers import Stored, StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import EVENT_AGAIN, EVENT_ID
from streams.server.embedded import EmbeddedServer
from tests.support.command_line import COMMAND_LINE
from tests.support.installation import publish
from tests.support.plain_http import plain_client
from tests.support.waiting import until

_tests = count(1)
SHARDS = 2
MAX_BODY = 16 << 10
URL = "https://example.com/hook"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LETTERS = "/v1/tenants/acme/dead-letters"


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
        return plain_client(base_url=self.url, headers=headers, timeout=30)

    async def receiver(self, receiver: str, **members: Any) -> None:
        """Put a receiver."""
        raw = msgspec.json.encode({"url": "https://example.com/"} | members)
        assert isinstance(await StoredConfigurations(self.js, self.names).put(receiver, raw), Stored)

    async def in_bucket(self, receiver: str = "acme.billing") -> dict[str, Any]:
        """The configuration of a receiver, as it is stored."""
        found = await StoredConfigurations(self.js, self.names).get(receiver)
        assert found is not None
        members: dict[str, Any] = msgspec.json.decode(found.raw)
        return members

    async def sent_again(self) -> list[str]:
        """The ids of the events that were sent again."""
        stored = await self.stored(self.names.deliveries)
        return [each.headers[EVENT_ID] for each in stored if EVENT_AGAIN in each.headers]

    async def bury(self, receiver: str, number: int, reason: str = "expired", body: bytes = b"{}") -> None:
        """Publishes an event, and buries it as one that was numbered and given up."""
        position = await publish(self.js, self.names, receiver, body, {EVENT_ID: f"e{number}"})
        burial = Burial(position=position, reason=reason, sequence=number, attempts=3, status=500)
        await DeadLetterWriter(self.js, self.names).bury(receiver, [burial])

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
    """Settings of an installation that no other test uses; its ledger does not exist yet."""
    return Settings(
        nats=(nats.url,), prefix=f"a{next(_tests)}", shards=SHARDS, max_body=MAX_BODY, max_bytes=4 << 20,
        ledger=f"sqlite:///{tmp_path / 'ledger.db'}",
    )  # fmt: skip


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    async with opened_api(settings) as api:
        yield api


@asynccontextmanager
async def opened_api(settings: Settings) -> AsyncIterator[Api]:
    """An API with these settings, on the installation that they name."""
    async with open_jetstream(settings) as js:
        await setup(js, Access(js, settings).installation)
        here = server.bind_socket("127.0.0.1", 0)
        async with server.served(settings, here) as live:
            yield Api(js, settings, server.url(here), live)


async def manager(api: Api, tenant: str = "acme") -> httpx.AsyncClient:
    """A client that may read the tenant's data and manage its receivers."""
    return await api.client(tenant, ["read", "manage"])
