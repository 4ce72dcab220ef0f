"""A client in TypeScript, with types generated from `/openapi.json` alone.

The generator, the compiler and the one package of the client are pinned in `.ci/typescript`. Nothing is
fetched: where they are not there, the test is skipped.
"""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.fleet.sink import Sink
from tests.support.processes.commands import PATIENCE_S, ROOT
from tests.support.processes.served import Served, serving

PINNED = ROOT / ".ci" / "typescript"
PACKAGES = PINNED / "node_modules"
RECEIVER = "acme.billing"

needs_typescript = pytest.mark.skipif(
    shutil.which("node") is None or not PACKAGES.exists(),
    reason="Node and its packages are not installed: `npm ci --prefix .ci/typescript`",
)


@needs_typescript
async def test_a_generated_client_puts_a_receiver_publishes_and_reads_attempts(tmp_path: Path) -> None:
    for name in ("client.ts", "package.json", "tsconfig.json"):
        shutil.copy(PINNED / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    server = tmp_path / "server"
    server.mkdir()
    with serving(server) as served:
        (tmp_path / "openapi.json").write_text(json.dumps(served.described()))
        run(tmp_path, "node_modules/.bin/openapi-typescript", "openapi.json", "-o", "openapi.ts")
        run(tmp_path, "node_modules/.bin/tsc")
        async with Sink() as sink:
            said = await asyncio.to_thread(client, tmp_path, served, sink.url(RECEIVER))
    assert said == {
        "receiver": RECEIVER, "rate": {"limit": 20, "per": "second", "burst": 5}, "id": "order-17",
        "wrong": 4, "sequence": 1, "status": 200, "refused": 404,
    }  # fmt: skip
    assert json.loads(sink.latest[RECEIVER].body) == {"order": 17}


def client(directory: Path, served: Served, receiver: str) -> object:
    """Runs the compiled client, and returns its output."""
    variables = {"ANGARIUM_URL": served.url, "ANGARIUM_TOKEN": served.token, "RECEIVER_URL": receiver}
    return json.loads(run(directory, "node", "out/client.js", **variables))


def run(directory: Path, *command: str, **variables: str) -> str:
    done = subprocess.run(
        command, cwd=directory, env=os.environ | variables, capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
