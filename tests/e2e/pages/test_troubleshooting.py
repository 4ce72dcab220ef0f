"""An operator's questions at night, answered by the commands that `docs/troubleshooting.md` shows."""

import asyncio
import os
import sys
from pathlib import Path

from tests.support.fleet.fleet import SHARDS, Fleet, names
from tests.support.pages.pages import Page
from tests.support.processes.commands import PATIENCE_S, ROOT, Terminal, line_with
from tests.support.processes.ledger import LedgerProcess
from tests.support.waiting import COMMAND_LOOK_S

BILLING = "acme.billing"
LATE = 30
SLOW = {"limit": 1, "per": "hour", "burst": 1}
PAGE = Page(ROOT / "docs" / "troubleshooting.md")


class LateFleet:
    """A fleet whose events for one receiver come late."""

    def __init__(self, fleet: Fleet, terminal: Terminal) -> None:
        self.fleet = fleet
        self.terminal = terminal
        self.published = 0

    async def begin(self, *ids: str) -> None:
        """The receiver is slow, and events wait: those of these ids first, and many others."""
        await self.fleet.configure([BILLING], rate=SLOW)
        others = [f"order-{self.published + 100 + number}" for number in range(LATE)]
        for each in (*ids, *others):
            await self.fleet.js.publish(names.publish_to(BILLING), b"{}", {"Angarium-Id": each})
        self.published += len(ids) + LATE

        async def seen() -> bool:
            picture = await asyncio.to_thread(self.terminal.json, "top", "acme")
            return [each["limited_by"] for each in picture["receivers"]] == ["rate"]

        await self.fleet.until_true(seen, "the events are late", COMMAND_LOOK_S)

    async def over(self) -> None:
        """All of them arrive in the end."""
        arrivals = self.fleet.sink.arrivals
        await self.fleet.until(lambda: len(arrivals[BILLING]) == self.published, "all have arrived")

    async def run(self, script: str, **more: str) -> str:
        """Run a block of the page; returns what it printed."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        process = await asyncio.create_subprocess_exec(
            "bash", "-euo", "pipefail", "-c", script, cwd=self.terminal.directory,
            env=self.terminal.environment | {"PATH": path} | more,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()


async def test_questions_of_the_night_are_answered_in_time(fleet: Fleet, tmp_path: Path) -> None:
    late, late_over_http, others, others_over_http = PAGE.scripts_under("Answering a complaint")
    terminal = Terminal(tmp_path, fleet.server.url)
    book = tmp_path / "ledger.db"
    terminal.environment |= {"ANGARIUM_SHARDS": str(SHARDS), "ANGARIUM_LEDGER": f"sqlite:///{book}"}
    ledger = LedgerProcess(fleet, book, tmp_path / "ledger.log")
    await ledger.start()
    await fleet.start_ready()
    late_fleet = LateFleet(fleet, terminal)

    await late_fleet.begin("order-17-created")
    said = await late_fleet.run(late)
    assert f"{BILLING}\tactive\t" in said
    assert "\tits rate\n" in said
    assert "held back by its rate of " in said
    assert "rate" in said.splitlines()[-1]
    await late_fleet.over()

    async def told() -> bool:
        return "delivered" in (await asyncio.to_thread(terminal.run, "event", "order-17-created")).stdout

    await fleet.until_true(told, "the ledger has it", COMMAND_LOOK_S)
    said = await late_fleet.run(others)
    assert f"{BILLING} #1 (message): " in said
    assert "stored 2" in said
    assert "rate" in said

    scopes = [each for scope in ("read", "manage") for each in ("--scope", scope)]
    token = (await asyncio.to_thread(terminal.done, "token", "create", "acme", *scopes)).strip()
    with terminal.start("api", "--port", "0") as api:
        url = (await asyncio.to_thread(line_with, api.stdout, "serving on ")).split()[-1]
        web = {"url": url, "auth": f"Authorization: Bearer {token}"}
        await late_fleet.begin()
        said = await late_fleet.run(late_over_http, **web)
        assert '"limited_by":"rate"' in said
        assert '"why":"held back by its rate of ' in said
        await late_fleet.over()
        said = await late_fleet.run(others_over_http, **web)
        assert '"state":"delivered"' in said
        api.terminate()
        assert api.wait(PATIENCE_S) == 0
    await ledger.stop()
