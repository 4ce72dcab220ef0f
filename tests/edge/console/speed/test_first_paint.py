"""Pages of the console with very many receivers and attempts: first paint in Chromium, and bounded content.

`ANGARIUM_CONSOLE_ATTEMPTS` sets the number of attempts of the large installation, which is a soak test.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from msgspec import Struct

from angarium.bench.console.crowd import WIDE_EVENT, CrowdPlan
from angarium.bench.console.pages import ServedConsole, served_console
from tests.edge.console.chromium import NEEDS_CHROMIUM, Tab, tab

pytestmark = NEEDS_CHROMIUM

FIRST_PAINT_MAX_MS = 600.0
"""A bound for machines that do other work, too. On one of its own 150 ms are wanted; times are printed."""
TRIES_MAX = 20
"""Tries of each page, of which the best counts, since other tests use the same processors."""
SMALL = CrowdPlan(receivers=2000, attempts=20_000, shards=8)
LARGE = CrowdPlan(receivers=100_000, attempts=int(os.environ.get("ANGARIUM_CONSOLE_ATTEMPTS", "1000000")))
ROWS_MAX = 300
"""Rows of a page, whatever there is to show."""
ROWS = "document.querySelectorAll('tr, .timeline li').length"


class Address(Struct, frozen=True):
    """The address of a console."""

    url: str


@asynccontextmanager
async def signed_in_tab(console: ServedConsole) -> AsyncIterator[Tab]:
    """A tab of a browser that has signed in to it."""
    async with tab(Address(f"http://127.0.0.1:{console.port}")) as browser:
        await browser.sign_in(console.token)
        yield browser


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(SMALL, id="small"),
        pytest.param(LARGE, id="large", marks=[pytest.mark.soak, pytest.mark.alone]),
    ],
)
async def test_each_page_of_a_large_installation_is_painted_soon(plan: CrowdPlan) -> None:
    late: dict[str, list[float]] = {}
    async with served_console(plan, print) as console, signed_in_tab(console) as browser:
        for path in console.paths:
            painted = [await browser.first_paint_ms(path)]
            while min(painted) > FIRST_PAINT_MAX_MS and len(painted) < TRIES_MAX:
                painted.append(await browser.first_paint_ms(path))
            print(f"{path}: {', '.join(f'{each:.0f}' for each in painted)} ms")
            if min(painted) > FIRST_PAINT_MAX_MS:
                late[path] = painted
            rows = await browser.page.evaluate(ROWS)
            assert rows <= ROWS_MAX, path
    assert not late


async def test_ten_thousand_rows_are_shown_page_by_page() -> None:
    async with served_console(SMALL, print) as console, signed_in_tab(console) as browser:
        seen, page = set[str](), browser.page
        await browser.open(next(path for path in console.paths if path.endswith(WIDE_EVENT)))
        while True:
            assert await page.evaluate(ROWS) <= ROWS_MAX
            for each in await page.locator("section.card h2 a").all_inner_texts():
                assert each not in seen
                seen.add(each)
            following = page.locator("nav.pages a[rel=next]")
            if not await following.count():
                break
            before = urlsplit(page.url).query
            await following.click()
            await browser.until(f"location.search !== {('?' + before if before else '')!r}")
        assert len(seen) == SMALL.receivers // 100
        await browser.open("/console/receivers")
        assert await page.locator("tbody tr").count() == 50
        await page.click("text=Next page")
        await page.wait_for_selector("text=First page")
        assert await page.locator("tbody tr").count() == 50
