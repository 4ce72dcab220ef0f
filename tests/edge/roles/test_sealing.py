"""Sealed secrets under the permissions of `deploy/nats/permissions.conf`: each role can do its part."""

import asyncio
from pathlib import Path

from streams.sealing.key_file import new_key_line
from tests.support.fleet.sink import Sink
from tests.support.processes.commands import PATIENCE_S, Terminal, line_with
from tests.support.processes.roles import serving
from tests.support.waiting import until

KEYED, LATER = "acme.keyed", "acme.later"


async def test_an_operator_rotates_and_a_node_opens_what_it_sealed(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    keys.write_text(new_key_line("one"))
    with serving(tmp_path) as server:
        operator = Terminal(tmp_path, server.url("operator"))
        await asyncio.to_thread(operator.done, "setup")
        async with Sink() as sink:
            put = ("receiver", "put", KEYED, "--url", sink.url(KEYED))
            await asyncio.to_thread(operator.done, *put)
            rotated = ("key", "rotate", "--key-file", str(keys))
            done = await asyncio.to_thread(operator.done, *rotated)
            assert done == "sealed 1 receiver with one; already sealed: 0\n"
            node_terminal = Terminal(tmp_path, server.url("node"))
            node_terminal.environment["ANGARIUM_KEY_FILE"] = str(keys)
            arguments = ("node", "--allow-http", "--allow-network", "127.0.0.0/8", "--log-level", "info")
            with node_terminal.start(*arguments) as node:
                await asyncio.to_thread(line_with, node.stderr, "node.ready")
                await asyncio.to_thread(operator.done, "publish", KEYED, "{}")
                await until(lambda: bool(sink.arrivals[KEYED]))
                node.terminate()
                _, log = await asyncio.to_thread(node.communicate, timeout=PATIENCE_S)
            assert "permissions violation" not in log


async def test_a_node_with_a_key_says_that_secrets_are_sealed(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    keys.write_text(new_key_line("one"))
    with serving(tmp_path) as server:
        operator, api = (Terminal(tmp_path, server.url(role)) for role in ("operator", "api"))
        await asyncio.to_thread(operator.done, "setup")
        node_terminal = Terminal(tmp_path, server.url("node"))
        node_terminal.environment["ANGARIUM_KEY_FILE"] = str(keys)
        with node_terminal.start("node", "--log-level", "info") as node:
            await asyncio.to_thread(line_with, node.stderr, "node.ready")
            put = ("receiver", "put", LATER, "--url", "https://example.com/")
            for keyless in (operator, api):
                refused = await asyncio.to_thread(keyless.failed, *put, status=2)
                assert "this process has no key to seal with" in refused
            await asyncio.to_thread(api.done, *put, "--key-file", str(keys))
            node.terminate()
            _, log = await asyncio.to_thread(node.communicate, timeout=PATIENCE_S)
    assert "permissions violation" not in log
