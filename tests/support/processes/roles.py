"""nats-server with the permissions of `deploy/`, and clients that are its users."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from nats.aio.client import Client

from streams.server import binary
from tests.support.processes.commands import PATIENCE_S

DEPLOY = Path(__file__).parents[3] / "deploy"
USERS = ("node", "operator", "inspector", "ledger", "acme", "api")
STEP_S = 60.0


class User:
    """A connection, and what the server refused it."""

    def __init__(self) -> None:
        self.client = Client()
        self.refusals: asyncio.Queue[str] = asyncio.Queue()

    async def note(self, error: Exception) -> None:
        """Keep what the server says."""
        self.refusals.put_nowait(str(error))

    async def ask(self, subject: str, body: object = b"") -> bytes:
        """The answer; raises if nothing listens or nothing was allowed."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return (await self.client.request(subject, data, timeout=STEP_S)).data

    async def ask_all(self, subject: str, answers: int, timeout_s: float = STEP_S) -> list[bytes]:
        """The first `count` answers to one request, or those that come in time."""
        inbox = self.client.new_inbox()
        heard = await self.client.subscribe(inbox)
        await self.client.publish(subject, b"", reply=inbox)
        found = list[bytes]()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while len(found) < answers:
                    found.append((await heard.next_msg(timeout=STEP_S)).data)
        await heard.unsubscribe()
        return found

    async def is_refused(self, subject: str) -> bool:
        """Publishes and waits for the refusal, which is all that the server says of a publish."""
        await self.client.publish(subject, b"")
        async with asyncio.timeout(STEP_S):
            return f'publish to "{subject.lower()}"' in (await self.refusals.get()).lower()

    async def may_not_hear(self, subject: str) -> bool:
        """Subscribes and waits for the refusal."""
        await self.client.subscribe(subject)
        async with asyncio.timeout(STEP_S):
            return f'subscription to "{subject.lower()}"' in (await self.refusals.get()).lower()


class Server:
    """Made by `serving`. `address` is `127.0.0.1:…`."""

    def __init__(self, address: str) -> None:
        self.address = address

    def url(self, user: str) -> str:
        """The URL that one of the users connects to."""
        return f"nats://{user}:secret-{user}@{self.address}"

    @contextlib.asynccontextmanager
    async def user(self, name: str) -> AsyncIterator[User]:
        """A connection as one of the users."""
        user = User()
        await user.client.connect(self.url(name), error_cb=user.note)
        try:
            yield user
        finally:
            await user.client.close()


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[Server]:
    """A server with the permissions as they lie in `deploy/`."""
    (directory / "ports").mkdir()
    shutil.copy(DEPLOY / "nats-permissions.conf", directory)
    (directory / "nats-server.conf").write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: "{directory}/ports"\n'
        f'jetstream {{ store_dir: "{directory}" }}\ninclude nats-permissions.conf\n'
    )
    server = subprocess.Popen(
        (binary.find(), "-c", directory / "nats-server.conf", "-l", directory / "log"),
        env={**os.environ, **{f"ANGARIUM_{user.upper()}_PASSWORD": f"secret-{user}" for user in USERS}},
    )
    try:
        yield Server(address_told_in(directory / "ports"))
    finally:
        server.terminate()
        server.wait()


def address_told_in(ports: Path) -> str:
    """The address in the ports file of a server."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if told := "".join(file.read_text() for file in ports.glob("*.ports")):
            return str(json.loads(told)["nats"][0].removeprefix("nats://"))
        time.sleep(0.01)
    raise AssertionError("the server does not serve")
