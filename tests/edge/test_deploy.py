"""What lies in `deploy/` is true: every setting is shown with its default, and NATS takes the permissions.

The permissions are tried on a real server: each user does what it is for, and tries what it must not do.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from angarium import settings
from angarium.settings import Settings
from streams import nats_binary

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
USERS = ("node", "operator", "inspector", "acme")
STREAMS = {
    "ANGARIUM_DELIVERIES": "angarium.deliver.*.*",
    "ANGARIUM_JOURNAL": "angarium.journal.*",
    "KV_angarium_actors": "$KV.angarium_actors.>",
    "KV_angarium_receivers": "$KV.angarium_receivers.>",
}
CONSUMER = {"durable_name": "shard-0", "ack_policy": "explicit"}

Connect = Callable[[str], AbstractAsyncContextManager["User"]]


class User:
    """A connection, and what the server refused it."""

    def __init__(self) -> None:
        self.client = Client()
        self.refusals: asyncio.Queue[str] = asyncio.Queue()

    async def note(self, error: Exception) -> None:
        self.refusals.put_nowait(str(error))

    async def ask(self, subject: str, body: object = b"") -> bytes:
        """The answer; raises where nobody listens or nothing was allowed."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return (await self.client.request(subject, data, timeout=60)).data

    async def is_refused(self, subject: str) -> bool:
        """Publishes and waits for the refusal, which is all that the server says of a publish."""
        await self.client.publish(subject, b"")
        async with asyncio.timeout(60):
            return f'publish to "{subject.lower()}"' in (await self.refusals.get()).lower()


def test_the_settings_file_shows_every_setting_with_its_default(tmp_path: Path) -> None:
    shown = (DEPLOY / "angarium.toml").read_text()
    fields = msgspec.structs.fields(Settings)
    assert re.findall(r"^#(\w+) = ", shown, re.MULTILINE) == [field.name for field in fields]
    assert tomllib.loads(re.sub(r"^#(?=\w+ = )", "", shown, flags=re.MULTILINE))
    with_default = "|".join(field.name for field in fields if field.default not in (None, msgspec.NODEFAULT))
    config = tmp_path / "angarium.toml"
    config.write_text(re.sub(rf"^#(?=({with_default}) = )", "", shown, flags=re.MULTILINE))
    assert settings.load({"config": str(config), "node": "n"}, {}) == Settings(node="n")


def test_the_settings_file_as_it_is_changes_nothing() -> None:
    given = {"config": str(DEPLOY / "angarium.toml"), "node": "n"}
    assert settings.load(given, {}) == Settings(node="n")


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """Connects as one of the users to a server with the permissions, where the operator made the streams."""
    (tmp_path / "ports").mkdir()
    shutil.copy(DEPLOY / "nats-permissions.conf", tmp_path)
    (tmp_path / "nats-server.conf").write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: "{tmp_path}/ports"\n'
        f'jetstream {{ store_dir: "{tmp_path}" }}\ninclude nats-permissions.conf\n'
    )
    server = await asyncio.create_subprocess_exec(
        *(nats_binary.find(), "-c", tmp_path / "nats-server.conf", "-l", tmp_path / "log"),
        env={**os.environ, **{f"ANGARIUM_{user.upper()}_PASSWORD": f"secret-{user}" for user in USERS}},
    )
    try:
        url = await address(tmp_path / "ports")

        @contextlib.asynccontextmanager
        async def connect(name: str) -> AsyncIterator[User]:
            user = User()
            inbox = b"_INBOX_inspector" if name == "inspector" else b"_INBOX"
            await user.client.connect(
                url, user=name, password=f"secret-{name}", error_cb=user.note, inbox_prefix=inbox
            )
            try:
                yield user
            finally:
                await user.client.close()

        async with connect("operator") as operator:
            for name, subject in STREAMS.items():
                config = {"name": name, "subjects": [subject], "allow_direct": True}
                assert b'"created"' in await operator.ask(f"$JS.API.STREAM.CREATE.{name}", config)
        yield connect
    finally:
        server.terminate()
        await server.wait()


async def address(ports: Path) -> str:
    async with asyncio.timeout(60):
        while True:
            if told := ports_file(ports):
                return str(json.loads(told)["nats"][0])
            await asyncio.sleep(0.01)


def ports_file(ports: Path) -> str:
    return "".join(file.read_text() for file in ports.glob("*.ports"))


async def test_a_producer_publishes_for_its_tenant_and_for_nobody_else(connect: Connect) -> None:
    async with connect("acme") as acme:
        stored = json.loads(await acme.ask("angarium.deliver.acme.billing", b"{}"))
        assert stored == {"stream": "ANGARIUM_DELIVERIES", "seq": 1}
        for subject in ("angarium.deliver.other.billing", "angarium.journal.0", "$JS.API.INFO"):
            assert await acme.is_refused(subject)


async def test_a_producer_cannot_have_its_acknowledgement_sent_into_the_journal(connect: Connect) -> None:
    async with connect("acme") as acme, connect("operator") as operator:
        await acme.client.publish("angarium.deliver.acme.billing", b"{}", reply="angarium.journal.0")
        await acme.ask("angarium.deliver.acme.billing", b"{}")
        journal = json.loads(await operator.ask("$JS.API.STREAM.INFO.ANGARIUM_JOURNAL"))
        assert journal["state"]["messages"] == 0


async def test_a_node_may_do_its_work_and_not_change_the_streams(connect: Connect) -> None:
    deliveries = "ANGARIUM_DELIVERIES"
    async with connect("node") as node:
        for subject in (
            "angarium.deliver.acme.billing",
            "angarium.journal.0",
            "$KV.angarium_actors.0._owner",
        ):
            assert b'"seq"' in await node.ask(subject, b"{}")
        for api, body in (
            (f"STREAM.INFO.{deliveries}", b""),
            ("STREAM.MSG.GET.ANGARIUM_JOURNAL", {"last_by_subj": "angarium.journal.0"}),
            (f"DIRECT.GET.{deliveries}", {"seq": 1, "next_by_subj": "angarium.deliver.acme.billing"}),
            (f"CONSUMER.CREATE.{deliveries}.shard-0", {"stream_name": deliveries, "config": CONSUMER}),
            (f"CONSUMER.INFO.{deliveries}.shard-0", b""),
            (f"CONSUMER.UNPIN.{deliveries}.shard-0", {"group": "shard"}),
            (f"CONSUMER.RESET.{deliveries}.shard-0", {"seq": 1}),
            (f"STREAM.PURGE.{deliveries}", {"seq": 1}),
            ("STREAM.PURGE.ANGARIUM_JOURNAL", {"seq": 1}),
        ):
            await node.ask(f"$JS.API.{api}", body)
        inbox = node.client.new_inbox()
        pulled = await node.client.subscribe(inbox)
        await node.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{deliveries}.shard-0", b"1", reply=inbox)
        await (await pulled.next_msg(timeout=60)).ack()
        for subject in (
            "angarium.ctl.*.*.*",
            "$SRV.PING",
            "$KV.angarium_receivers.>",
            "$KV.angarium_nodes.>",
        ):
            await node.client.subscribe(subject)
        await node.client.flush()
        assert node.refusals.empty()
        for subject in (f"$JS.API.STREAM.DELETE.{deliveries}", "angarium.events.acme.order", "anything"):
            assert await node.is_refused(subject)


async def test_an_operator_redrives_and_owns_nothing(connect: Connect) -> None:
    async with connect("operator") as operator:
        for subject in ("$KV.angarium_actors._redrive", "angarium.deliver.acme.billing"):
            assert b'"seq"' in await operator.ask(subject, b"{}")
        for subject in ("$KV.angarium_actors.0._owner", "angarium.journal.0", "angarium.dead.acme.billing"):
            assert await operator.is_refused(subject)


async def test_an_inspector_hears_the_nodes_and_sees_no_secret(connect: Connect) -> None:
    async with connect("node") as node, connect("inspector") as inspector:

        async def answer(request: Msg) -> None:
            await request.respond(b'{"ok":true}')

        await node.client.subscribe("angarium.ctl.*.*.*", cb=answer)
        await node.client.flush()
        assert await inspector.ask("angarium.ctl.inspect.acme.billing") == b'{"ok":true}'
        assert b'"state"' in await inspector.ask("$JS.API.STREAM.INFO.KV_angarium_receivers")
        for subject in (
            "$JS.API.STREAM.MSG.GET.KV_angarium_receivers",
            "$JS.API.STREAM.MSG.GET.ANGARIUM_DELIVERIES",
            "angarium.ctl.pause.acme.billing",
            "angarium.deliver.acme.billing",
            "$KV.angarium_receivers.acme.billing",
        ):
            assert await inspector.is_refused(subject)
        with pytest.raises(NoRespondersError):
            await inspector.ask("$SRV.PING")
