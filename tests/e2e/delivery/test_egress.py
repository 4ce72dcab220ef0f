"""A node that reaches receivers through a proxy, which refuses at times, or which it does not know."""

import base64
from pathlib import Path

from tests.contract.transport.egress.proxy import TestProxy, answering, honest
from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import publish
from tests.support.processes.nodes import PROFILES, shortened

PASSWORD, OTHER_PASSWORD = "s3cret-of-the-proxy", "an0ther"
SETTINGS = """
[proxies.default]
url = "http://127.0.0.1:{port}"
user = "angarium"
password_file = "{password}"
"""
RETRY = {"base_s": 0.05, "cap_s": 0.2}


async def test_a_receiver_behind_a_proxy_loses_nothing_while_it_refuses_or_is_unknown(
    fleet: Fleet, tmp_path: Path
) -> None:
    proxy = TestProxy()
    await proxy.start()
    (tmp_path / "password").write_text(PASSWORD)
    text = SETTINGS.format(port=proxy.port, password=tmp_path / "password")
    (tmp_path / "angarium.toml").write_text(text)
    with shortened(PROFILES):
        node = await fleet.start_ready()
    offline = {"after_s": 1, "disable_after_s": 60}
    await fleet.configure(["t.r"], retry=RETRY, offline=offline)
    arrivals = fleet.sink.arrivals["t.r"]

    await publish(fleet.js, "t.r", "a", b"{}")
    await fleet.until(lambda: len(arrivals) == 1, "an event came through the proxy")
    assert len(proxy.authorities) == 1

    proxy.script = answering(b"HTTP/1.1 403 Forbidden\r\n\r\n")
    for client in proxy.clients:
        client.writer.transport.abort()
    await publish(fleet.js, "t.r", "b", b"{}")
    await fleet.until(lambda: len(proxy.authorities) >= 6, "the proxy was asked again and again")
    state = await fleet.ask("inspect", "t.r")
    assert state["last_attempt"]["error"] == "proxy: proxy default: answered 403"
    assert state["failing_since"] is None
    assert state["phase"] in ("active", "backing_off")
    assert "the proxy did not let the last attempt through" in state["why"] or state["phase"] == "active"
    proxy.script = honest
    await fleet.until(lambda: len(arrivals) == 2, "the event came once the proxy let it through")
    assert (arrivals[1].sequence, arrivals[1].attempt > 4) == (2, True)

    await fleet.configure(["t.r"], retry=RETRY, proxy="eu")
    await fleet.hears(node, "receiver.invalid")
    await publish(fleet.js, "t.r", "c", b"{}")
    state = await fleet.ask("inspect", "t.r")
    assert state["phase"] == "misconfigured"
    assert "add [proxies.eu] to their settings" in state["why"]
    await fleet.configure(["t.r"], retry=RETRY)
    await fleet.until(lambda: len(arrivals) == 3, "the event that waited came")
    assert [each.sequence for each in arrivals] == [1, 2, 3]

    (tmp_path / "password").write_text(OTHER_PASSWORD)
    await fleet.hears(node, "file.reloaded")
    for client in proxy.clients:
        client.writer.transport.abort()
    await publish(fleet.js, "t.r", "d", b"{}")
    await fleet.until(lambda: len(arrivals) == 4, "an event came with the other password")
    assert [_told(OTHER_PASSWORD) in head for head in proxy.heads] == [False] * (len(proxy.heads) - 1) + [
        True
    ]
    log = "".join(map(str, node.said))
    assert not [each for each in (PASSWORD, OTHER_PASSWORD) if each in log]
    await proxy.stop()


def _told(password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"angarium:{password}".encode())
