"""The pictures of docs/console.md. With `ANGARIUM_PICTURES=1` they are made again, and stored there."""

import io
import os
import struct
from pathlib import Path

import pytest
from PIL import Image

from tests.edge.api.conftest import Api
from tests.edge.console.chromium import NEEDS_CHROMIUM, Tab, tab
from tests.edge.console.conftest import post_orders
from tests.support.fleet.sink import Reply, Sink
from tests.support.processes.commands import ROOT
from tests.support.waiting import until

pytestmark = NEEDS_CHROMIUM

PICTURES = ROOT / "docs" / "console"
WIDTH, HEIGHT = 1000, 720
COLOURS = 64
"""A picture of so many colours has a quarter of the bytes."""
BYTES_MAX = 64 << 10


@pytest.fixture
async def shop(watched: Api, sink: Sink) -> Api:
    """With a receiver that gets its events, and one that is down, whose first event is a dead letter."""
    down = Reply(status=503, body=b"down for maintenance", headers=(("content-type", "text/plain"),))
    refused = Reply(status=422, body=b'{"error": "no such order"}')
    sink.manners["acme.billing"] = lambda number: refused if number == 1 else down
    await watched.receiver(
        "acme.billing", url=sink.url("acme.billing"), rate={"limit": 10},
        retry={"base_s": 600, "rejected_attempts": 1},
    )  # fmt: skip
    await watched.receiver("acme.mail", url=sink.url("acme.mail"))
    await post_orders(watched, "mail", 0, 20)
    await post_orders(watched, "billing", 100, 1)
    await until(lambda: bool(sink.arrivals["acme.billing"]))
    await post_orders(watched, "billing", 101, 11)
    await until(lambda: len(sink.arrivals["acme.billing"]) > 1)
    return watched


async def picture(browser: Tab, name: str, folder: Path) -> None:
    """Store a picture of the top of the page."""
    taken = await browser.page.screenshot(animations="disabled", caret="hide")
    image = Image.open(io.BytesIO(taken)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    image.save(folder / f"{name}.png", optimize=True)


async def test_the_page_about_the_console_has_its_pictures(shop: Api, tmp_path: Path) -> None:
    folder = PICTURES if os.environ.get("ANGARIUM_PICTURES") else tmp_path / "pictures"
    folder.mkdir(exist_ok=True)
    async with tab(shop, viewport={"width": WIDTH, "height": HEIGHT}) as browser:
        await browser.sign_in((await shop.token("acme", ["read", "manage"], note="the shop")).text)
        await browser.page.wait_for_selector("#worst >> text=backing off")
        await browser.page.wait_for_selector("#hour svg")
        await picture(browser, "overview", folder)
        await browser.page.click("#worst >> text=acme.billing")
        await browser.page.wait_for_selector("#chart svg")
        await picture(browser, "receiver", folder)
        await browser.page.click("text=Discard what waits…")
        await picture(browser, "preview", folder)
        await browser.open("/console/receivers/acme/billing/configuration")
        await picture(browser, "configuration", folder)
        await browser.page.click("text=Dead letters")
        await browser.page.click("td a >> nth=0")
        await picture(browser, "dead-letter", folder)
        await browser.open("/console/events/acme/order-100")
        await picture(browser, "event", folder)
        await browser.open("/console/")
        await browser.page.wait_for_selector("#hour svg")
        await browser.page.click("text=The hour in numbers")
        await browser.page.evaluate("document.querySelector('#hour').previousElementSibling.scrollIntoView()")
        await picture(browser, "hour", folder)
        await browser.open("/console/receivers/acme/mail/replay?since=1h")
        await picture(browser, "replay", folder)
        await browser.open("/console/receivers/acme/billing/audit")
        await browser.page.wait_for_selector("#audit svg")
        await picture(browser, "audit", folder)
    made = sorted(each.name for each in folder.iterdir())
    assert made == sorted(each.name for each in PICTURES.iterdir())
    for each in PICTURES.iterdir():
        content = each.read_bytes()
        assert struct.unpack(">II", content[16:24]) == (WIDTH, HEIGHT)
        assert len(content) <= BYTES_MAX
