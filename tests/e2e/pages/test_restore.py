"""A backup taken and restored by the commands that `docs/operating.md` shows."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

from tests.support.fleet.fleet import SHARDS, Fleet
from tests.support.fleet.load import Load
from tests.support.pages.pages import Page
from tests.support.processes.commands import ROOT
from tests.support.processes.nats_cli import NATS, needs_nats_cli

pytestmark = needs_nats_cli

DONE, HELD = "t.done", "t.held"


async def test_a_restored_backup_continues_where_it_ended(fleet: Fleet, tmp_path: Path) -> None:
    """Nothing happened since the backup, so nothing is repeated either; and then the store is lost."""
    scripts = Page(ROOT / "docs" / "operating.md").scripts
    backup, restore, meant = (each for each in scripts if "backup/" in each or "_checkpoint" in each)
    await fleet.configure([DONE])
    await fleet.configure([HELD], paused=True)
    load = Load(fleet, [DONE, HELD])
    node = await fleet.start_ready()
    await load.publish(5)
    await fleet.until(lambda: load.records[0].complete, f"all for {DONE} arrived")
    await node.stop()
    await run(backup, fleet, tmp_path)

    await fleet.server.stop()
    shutil.rmtree(tmp_path / "nats")
    await fleet.server.start()
    await run(restore, fleet, tmp_path)
    await run(meant, fleet, tmp_path)
    await fleet.start_ready()
    await load.publish(5)
    await fleet.ask("resume", HELD)
    await load.arrived()
    load.check()


async def run(script: str, fleet: Fleet, directory: Path) -> None:
    """Run a script to its end, and stop at the first command that fails."""
    programs = [str(Path(each).parent) for each in (sys.executable, NATS) if each]
    environment = os.environ | {
        "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
        "XDG_CONFIG_HOME": str(directory / "config"),
        "NATS_URL": fleet.server.url,
        "ANGARIUM_NATS": fleet.server.url,
        "ANGARIUM_SHARDS": str(SHARDS),
    }
    process = await asyncio.create_subprocess_exec(
        "bash", "-e", "-o", "pipefail", "-c", script, cwd=directory, env=environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
