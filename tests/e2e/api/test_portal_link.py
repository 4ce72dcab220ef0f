"""`angarium portal-link`: a link to the console of another process, listed and ended like any token."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streams.server.embedded import EmbeddedServer
from tests.support.plain_http import plain_client
from tests.support.processes.commands import Terminal, line_with
from tests.support.waiting import until_true

CSRF = re.compile(r'name="csrf" value="([^"]+)"')


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    async with EmbeddedServer(tmp_path / "nats", port=0) as server:
        yield Terminal(tmp_path, server.url)


@pytest.fixture
async def console(terminal: Terminal) -> AsyncIterator[str]:
    """The address of a console."""
    terminal.done("setup")
    with terminal.start("api", "--port", "0") as api:
        yield line_with(api.stdout, "serving on ").strip().rpartition(" ")[2]
        api.terminate()


async def test_a_link_signs_in_until_its_token_is_revoked(terminal: Terminal, console: str) -> None:
    address = f"--console-url={console}"
    made = terminal.run("portal-link", "acme", address, "--for", "30m", "--note", "Ada")
    assert (made.returncode, made.stdout.count("\n")) == (0, 1)
    assert "tenant acme has no receivers" in made.stderr
    assert made.stdout.startswith(f"{console}/console/portal/acme#ang_")
    token_id = made.stdout.split("_")[1]
    assert f"angarium token revoke {token_id} ends it" in made.stderr
    listed = json.loads(terminal.done("token", "list", "--json"))
    assert [(each["id"], each["note"], each["scopes"]) for each in listed] == [
        (token_id, "portal link: Ada", ["read"])
    ]
    async with plain_client(base_url=console) as browser:

        async def shows(status: int) -> bool:
            return (await browser.get("/console/")).status_code == status

        async def is_signed_in() -> bool:
            page = await browser.get("/console/portal/acme")
            csrf = CSRF.search(page.text)
            assert csrf is not None
            data = {"csrf": csrf[1], "token": made.stdout.strip()}
            return (await browser.post("/console/portal/acme", data=data)).status_code == 303

        await until_true(is_signed_in)
        assert await shows(200)
        terminal.done("token", "revoke", token_id)
        await until_true(lambda: shows(303))
    managing = json.loads(terminal.done("portal-link", "acme", address, "--manage", "--json"))
    assert managing["url"].startswith(f"{console}/console/portal/acme#ang_{managing['id']}_")


@pytest.mark.parametrize(
    ("given", "why"),
    [(["acme"], "--console-url is missing"), (["a b", "--console-url", "https://a.example"], "tenant 'a b'"),
     (["acme", "--console-url", "http://a.example"], "with TLS"),
     (["acme", "--console-url", "https://a.example", "--for", "2d"], "1 minute to 24 hours")],
)  # fmt: skip
async def test_a_link_that_cannot_be_is_wrong_usage(terminal: Terminal, given: list[str], why: str) -> None:
    done = terminal.run("portal-link", *given)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
