"""nats-server with the configurations of `deploy/nats`, and clients with its users."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from nats.aio.client import Client

from streams.server import binary
from streams.server.free_ports import free_ports
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
    """Made by `serving` and `serving_three`. Clients use `addresses`, servers `route_ports`."""

    def __init__(self, *addresses: str, route_ports: Sequence[int] = ()) -> None:
        self.addresses = addresses
        self.route_ports = route_ports

    def url(self, user: str) -> str:
        """The URL that one of the users connects to, or several, separated by commas."""
        return ",".join(f"nats://{user}:secret-{user}@{address}" for address in self.addresses)

    @contextlib.asynccontextmanager
    async def user(self, name: str) -> AsyncIterator[User]:
        """A connection as one of the users."""
        user = User()
        await user.client.connect(self.url(name).split(","), error_cb=user.note)
        try:
            yield user
        finally:
            await user.client.close()


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[Server]:
    """One server, with its configuration as it lies in `deploy/`."""
    (directory / "ports").mkdir()
    with started(directory, "one-server.conf", {}):
        yield Server(address_told_in(directory / "ports"))


@contextlib.contextmanager
def serving_three(directory: Path) -> Iterator[Server]:
    """Three servers that are a cluster; the addresses of all of them are that of the server."""
    with contextlib.ExitStack() as stack:
        route_ports = free_ports(3)
        addresses = []
        for number, port in enumerate(route_ports, 1):
            each = directory / f"nats-{number}"
            (each / "ports").mkdir(parents=True)
            names = {"NATS_NAME": each.name, "NATS_ROUTES": routes("secret-route", route_ports)}
            stack.enter_context(started(each, "three-servers.conf", names, route_port=port))
            addresses.append(address_told_in(each / "ports"))
        yield Server(*addresses, route_ports=route_ports)


def routes(password: str, ports: Sequence[int]) -> str:
    """The value of `NATS_ROUTES`."""
    return f"[{','.join(f'nats://route:{password}@127.0.0.1:{port}' for port in ports)}]"


@contextlib.contextmanager
def started(
    directory: Path, configuration: str, names: dict[str, str], route_port: int = -1
) -> Iterator[None]:
    """A server with a configuration of `deploy/nats`, but on loopback and with its data in the directory."""
    shutil.copy(DEPLOY / "nats" / "permissions.conf", directory)
    text = (DEPLOY / "nats" / configuration).read_text()
    for there, here in {
        '"0.0.0.0:4222"': '"127.0.0.1:-1"', '"127.0.0.1:8222"': '"127.0.0.1:-1"',
        '"0.0.0.0:6222"': f'"127.0.0.1:{route_port}"', "store_dir: /data": f'store_dir: "{directory}"',
    }.items():  # fmt: skip
        text = text.replace(there, here)
    (directory / "nats-server.conf").write_text(f'ports_file_dir: "{directory}/ports"\n{text}')
    passwords = {f"ANGARIUM_{user.upper()}_PASSWORD": f"secret-{user}" for user in (*USERS, "route")}
    server = subprocess.Popen(
        (binary.find_nats_server(), "-c", directory / "nats-server.conf", "-l", directory / "log"),
        env=os.environ | passwords | names,
    )
    try:
        yield
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
