"""Attacks on the console: slow forms, links from elsewhere, wrong tokens; and an outage of NATS."""

import asyncio
import socket
from urllib.parse import urlsplit

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from angarium.api import api_state
from angarium.api.bounded_protocol import BoundedProtocol
from angarium.api.requests import bodies
from angarium.console.pages.signing_in import sign_in
from tests.edge.api.conftest import Api
from tests.edge.console.conftest import signed_in, visitor

FROM_ELSEWHERE = {"accept": "text/html", "sec-fetch-site": "cross-site"}


async def test_a_form_that_never_comes_holds_no_connection(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The form needs no session, and connections are shared with those who publish."""
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(api.url).port)
    writer.write(
        b"POST /console/sign-in HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n"
        b"content-type: application/x-www-form-urlencoded\r\n\r\ncsrf="
    )
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer


async def test_a_link_from_elsewhere_does_not_end_the_session(api: Api) -> None:
    """Browsers send it without the cookie, which has to stay; the page asks for itself again, with it."""
    path = "/console/receivers?q=%22%3E%3Cb%3E&after=b"
    async with signed_in(api) as browser, visitor(api) as linked:
        answer = await linked.client.get(path, headers=FROM_ELSEWHERE)
        assert answer.status_code == 200
        assert f'http-equiv="refresh" content="0; url={path.replace("&", "&amp;")}"' in answer.text
        assert "angarium_console=" not in answer.headers.get("set-cookie", "")
        answer = await linked.client.get(path, headers=FROM_ELSEWHERE | {"sec-fetch-site": "same-origin"})
        assert answer.headers["location"].startswith("/console/sign-in?next=%2Fconsole%2Freceivers%3Fq%3D")
        assert "set-cookie" not in answer.headers
        assert (await browser.client.get(path, headers=FROM_ELSEWHERE)).status_code == 200
        answer = await linked.client.get(path, headers={"sec-fetch-site": "cross-site"})
        assert answer.status_code == 303


async def test_wrong_tokens_of_one_keep_no_other_out(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a proxy, all people have the same address."""
    monkeypatch.setattr(sign_in, "TRIES_PER_S", 0.01)
    async with visitor(api) as attacker:
        for status in (401, 429):
            await attacker.get("/console/sign-in")
            await attacker.post("/console/sign-in", {"token": "wrong"}, status)
    async with signed_in(api) as browser:
        await browser.get("/console/")


async def test_an_outage_of_nats_ends_no_session(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no revocation can be heard of, nothing is shown; afterwards the session goes on."""
    async with signed_in(api) as browser:
        request = browser.client.build_request("GET", "/console/live/acme")
        stream = await browser.client.send(request, stream=True)
        with monkeypatch.context() as outage:
            outage.setattr(api_state, "STALE_AFTER_S", 0.0)
            assert "no longer valid" in (await stream.aread()).decode()
            await browser.get("/console/", 503)
        await browser.get("/console/")


async def test_an_answer_does_not_wait_for_the_client_to_confirm_a_part_of_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is written in two parts. The kernel would hold the second one back for 40 ms."""
    made: list[socket.socket] = []

    def noting(protocol: BoundedProtocol, transport: asyncio.Transport) -> None:
        made.append(transport.get_extra_info("socket"))
        HttpToolsProtocol.connection_made(protocol, transport)

    monkeypatch.setattr(BoundedProtocol, "connection_made", noting)
    async with visitor(api) as browser:
        await browser.get("/console/sign-in")
        assert [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in made] == [1]
