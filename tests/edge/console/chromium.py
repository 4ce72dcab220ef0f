"""Chromium, driven by Playwright: pages that notice everything which a page must not do."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.support.processes.commands import ROOT
from tests.support.waiting import until_true

playwright = pytest.importorskip(
    "playwright.async_api", reason="Playwright is not installed: it is in the extra conformance"
)

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
AXE = ROOT / ".ci/console/node_modules/axe-core/axe.min.js"
NEEDS_CHROMIUM = pytest.mark.skipif(
    not Path(CHROMIUM).exists(), reason="Chromium is not installed: apt-get install chromium"
)
NEEDS_AXE = pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not installed: npm ci --prefix .ci/console"
)
PATIENCE_MS = 60_000
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')"
SERIOUS = ("serious", "critical")


class Served(Protocol):
    """A console that is served at a URL."""

    @property
    def url(self) -> str: ...


class Tab:
    """A tab of Chromium. `faults`: errors of scripts, blocked loads, dialogs, and requests to other hosts."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda line: self.faults.append(line.text) if line.type == "error" else None)
        page.on("dialog", lambda dialog: self.faults.append(f"a dialog: {dialog.message}"))
        page.on("request", self._on_request)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(self.url):
            self.faults.append(f"a request to {request.url}")

    async def open(self, path: str) -> None:
        """Load a page of the console."""
        await self.page.goto(self.url + path)

    async def sign_in(self, token: str) -> None:
        """Sign in with a token, as people do."""
        await self.open("/console/sign-in")
        await self.page.fill("#token", token)
        await self.page.press("#token", "Enter")
        await self.page.wait_for_selector("text=Sign out")

    async def violations(self) -> list[str]:
        """The serious findings of axe-core about this page."""
        await self.page.evaluate(AXE.read_text())
        found = await self.page.evaluate("axe.run()")
        return [
            f"{each['id']}: {each['nodes'][0]['html'][:200]}"
            for each in found["violations"]
            if each["impact"] in SERIOUS
        ]

    async def until(self, condition: str) -> None:
        """Wait for a condition in JavaScript; the policy of our pages lets no page evaluate one."""

        async def holds() -> bool:
            return bool(await self.page.evaluate(condition))

        await until_true(holds)

    async def first_paint_ms(self, path: str) -> float:
        """The time from asking for a page until its first text was drawn."""
        await self.open(path)
        await self.until(f"({FIRST_PAINT}).length > 0")
        painted: float = await self.page.evaluate(f"({FIRST_PAINT})[0].startTime")
        return painted

    async def is_wider_than_the_window(self) -> bool:
        """True if the page has to be scrolled sideways."""
        wider: bool = await self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        return wider


@asynccontextmanager
async def tab(api: Served, **options: Any) -> AsyncIterator[Tab]:
    """A tab in a Chromium of its own; at its end it must have no faults."""
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM)
        context = await browser.new_context(**options)
        try:
            made = Tab(await context.new_page(), api.url)
            yield made
            assert not made.faults, made.faults
        finally:
            await browser.close()
