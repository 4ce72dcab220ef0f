"""Commands on a NATS without an installation: each says what is missing, and what to do."""

import base64
import time
from pathlib import Path

import pytest

from angarium.cli.main import MODULES
from streams.nats.retry import COMMAND_PATIENCE_S
from tests.support.processes.commands import Terminal

NAME = "acme.billing"
TYPED = [
    f"receiver put {NAME} --url https://example.com/", f"receiver get {NAME}",
    f"receiver set {NAME} --rate 1/s", f"receiver rm {NAME} --yes", f"receiver pause {NAME}",
    f"receiver resume {NAME}", f"receiver ping {NAME}", f"receiver skip {NAME}",
    f"receiver forget {NAME} --yes", f"receiver rotate-secret {NAME}", "receiver list", "export",
    "apply --file receivers.json", "top --once", "tail --count 1", f"inspect {NAME}",
    f"publish {NAME} --data {{}}", "publish acme --data {}", "dead list", "dead show 1", "dead redrive 1",
    "dead drop 1 --yes", f"replay {NAME} --since 1h", "erase --event o-1 --yes", "job list", "doctor",
    "later list", "later cancel acme order-7", "key status", "key rotate --key-file keys",
    "fleet", "fleet drain n1", "fleet resume n1",
    "repair --accept-loss all", "token list", "token create acme --scope read", "token revoke x", "node",
    "portal-link acme --console-url http://127.0.0.1:8080",
    "api --port 0", "ledger",
]  # fmt: skip
ON_LEDGERS = ("attempts", "audit", "event", "history", "minutes")
"""Commands that ask a ledger first."""
WITH_THEIR_OWN = ("bench", "demo", "dev", "listen", "setup")
"""Commands that make their own installation, or need none."""
MISSING = "(9 streams are missing, ANGARIUM_EVENTS among them): run angarium setup"


@pytest.fixture
def terminal(nats_url: str, tmp_path: Path) -> Terminal:
    """A terminal on nats-server with JetStream, where nothing is set up."""
    (tmp_path / "receivers.json").write_text('{"receivers": {"acme.billing": {"url": "https://a.example/"}}}')
    (tmp_path / "keys").write_text(f"one {base64.b64encode(bytes(32)).decode()}\n")
    (tmp_path / "keys").chmod(0o600)
    return Terminal(tmp_path, nats_url)


@pytest.mark.parametrize("typed", TYPED)
def test_a_command_without_an_installation_says_how_to_set_it_up(terminal: Terminal, typed: str) -> None:
    began_at = time.monotonic()
    done = terminal.run(*typed.split())
    assert time.monotonic() - began_at < COMMAND_PATIENCE_S
    assert done.returncode == 1
    said = done.stdout if typed == "doctor" else done.stderr
    assert f"nothing is set up here {MISSING}" in said
    assert "503" not in done.stderr
    assert "JetStream error" not in done.stderr


def test_each_command_is_tried_without_an_installation() -> None:
    assert {each.split()[0] for each in TYPED} | {*ON_LEDGERS, *WITH_THEIR_OWN} == MODULES.keys()


def test_an_event_that_no_stream_takes_is_not_said_to_be_stored(terminal: Terminal) -> None:
    said = terminal.failed("publish", NAME, "--data", "{}")
    assert said == f"angarium: the event is not stored: nothing is set up here {MISSING}\n"


def test_another_prefix_is_named_as_the_possible_reason(terminal: Terminal) -> None:
    said = terminal.failed("receiver", "list", "--prefix", "nowhere")
    assert said.endswith(": run angarium setup, or correct the prefix nowhere (ANGARIUM_PREFIX)\n")
