"""`angarium dev` and the commands that users type next, from the first publish to Ctrl-C."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from tests.support.free_ports import free_port
from tests.support.processes.commands import PATIENCE_S, Terminal, line_with

Output = list[str]

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@contextmanager
def dev(directory: Path, ending: signal.Signals) -> Iterator[tuple[Terminal, Output]]:
    """A second terminal for a running `angarium dev`, which ends in order and leaves nothing behind."""
    terminal = Terminal(directory, "")
    # What is said of another server, such as the one in production, is left alone.
    (directory / "ca.pem").touch()
    (directory / "production.toml").write_text(
        'replicas = 3\nnats = "nats://127.0.0.1:1"\ntls_ca = "ca.pem"\n'
    )
    output: Output = []
    ports = ("--port", str(free_port()), "--api-port", str(free_port()))
    with terminal.start("dev", *ports, "--config", "production.toml") as process:
        url = line_with(process.stdout, "ready: NATS on ").split()[3]
        terminal.environment["ANGARIUM_NATS"] = url
        yield terminal, output
        process.send_signal(ending)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        output.append(err)
    address = urlsplit(url)
    with socket.socket() as probe:
        assert probe.connect_ex((address.hostname, address.port)) != 0


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal for all tests in which nothing goes wrong."""
    with dev(tmp_path_factory.mktemp("dev"), signal.SIGINT) as (terminal, output):
        yield terminal
    assert not _told(output[0], "warning", "error")


def test_an_event_arrives_within_the_first_five_minutes(terminal: Terminal) -> None:
    with terminal.start("listen", "--port", "0", "--secret", SECRET, "--json", "--count", "3") as listener:
        url = line_with(listener.stderr, "listening on").split()[-1]
        terminal.done("receiver", "put", "acme.billing", "--url", url, "--secret", SECRET)
        for number in (1, 2):
            terminal.done("publish", "acme.billing", f'{{"order": {number}}}', "--type", "order.created")
        pinged = terminal.json("receiver", "ping", "acme.billing")
        out, err = listener.communicate(timeout=PATIENCE_S)
    assert listener.returncode == 0, err
    events = [msgspec.json.decode(line) for line in out.splitlines()]
    assert all(event["verified"] for event in events)
    numbered = [(each["sequence"], each["type"], each["body"]) for each in events if each["sequence"]]
    assert numbered == [(n, "order.created", f'{{"order": {n}}}') for n in (1, 2)]
    assert [each["type"] for each in events if not each["sequence"]] == ["angarium.ping"]
    assert pinged["status"] == 200

    terminal.until(lambda: terminal.json("inspect", "acme.billing")["settled_sequence"] == 2)
    state = terminal.json("inspect", "acme.billing")
    assert (state["phase"], state["next_sequence"], state["backlog"]) == ("idle", 3, 0)
    assert "acme.billing: nothing waits\n" in terminal.done("inspect", "acme.billing")

    findings = msgspec.json.decode(terminal.done("doctor", "--json"))
    assert {each["subject"]: each["text"] for each in findings}["shards"] == "live nodes own all 4 shards"


def test_a_receiver_proves_itself_before_it_gets_events(terminal: Terminal) -> None:
    with terminal.start("listen", "--port", "0", "--secret", SECRET, "--json", "--count", "1") as listener:
        url = line_with(listener.stderr, "listening on").split()[-1]
        put = ("receiver", "put", "acme.proving", "--url", url, "--handshake", "hmac", "--secret", SECRET)
        terminal.done(*put)
        assert "unverified: it has to prove itself" in terminal.done("inspect", "acme.proving")
        assert terminal.done("receiver", "verify", "acme.proving").startswith(
            "acme.proving is verified, after "
        )
        terminal.done("publish", "acme.proving", "{}")
        out, err = listener.communicate(timeout=PATIENCE_S)
    assert msgspec.json.decode(out)["sequence"] == 1
    assert "answered a handshake (GET /)" in err
    assert terminal.json("inspect", "acme.proving")["handshake"]["verified"] is True


def test_a_paused_receiver_waits_and_continues(terminal: Terminal) -> None:
    with terminal.start("listen", "--port", "0", "--json", "--count", "1") as listener:
        url = line_with(listener.stderr, "listening on").split()[-1]
        terminal.done("receiver", "put", "acme.paused", "--url", url, "--unsigned", "--paused")
        terminal.done("publish", "acme.paused", "{}")
        terminal.until(lambda: terminal.json("inspect", "acme.paused")["phase"] == "paused")
        assert terminal.done("receiver", "resume", "acme.paused") == "acme.paused is resumed\n"
        out, _ = listener.communicate(timeout=PATIENCE_S)
    assert msgspec.json.decode(out)["sequence"] == 1
    assert terminal.done("receiver", "pause", "acme.paused") == "acme.paused is paused\n"
    assert terminal.json("receiver", "get", "acme.paused")["paused"] is True


def test_a_ping_that_fails_ends_with_1(terminal: Terminal) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    terminal.done("receiver", "put", "acme.away", "--url", url, "--unsigned")
    error = terminal.failed("receiver", "ping", "acme.away")
    assert "acme.away did not accept the ping: connect: 127.0.0.1" in error
    assert re.search(r", after [\d.]+ ms\n\Z", error)


def test_requests_for_receivers_that_are_not_there_are_denied(terminal: Terminal) -> None:
    assert "there is no receiver acme.nobody: create it" in terminal.failed("inspect", "acme.nobody")
    assert "there is no receiver acme.nobody: " in terminal.failed("receiver", "pause", "acme.nobody")


def test_a_server_that_was_killed_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    listen = ("listen", "--port", "0", "--json", "--count", "2")
    with dev(tmp_path, signal.SIGTERM) as (terminal, output), terminal.start(*listen) as listener:
        url = line_with(listener.stderr, "listening on").split()[-1]
        terminal.done("receiver", "put", "acme.killed", "--url", url, "--unsigned", "--paused")
        terminal.done("publish", "acme.killed", "1")
        pid = int((tmp_path / ".angarium" / "nats-server.pid").read_text())
        assert pid != int((tmp_path / ".angarium" / "dev.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        terminal.until(lambda: terminal.run("publish", "acme.killed", "2").returncode == 0)
        terminal.until(lambda: terminal.run("receiver", "resume", "acme.killed").returncode == 0)
        out, _ = listener.communicate(timeout=PATIENCE_S)
    events = [msgspec.json.decode(line) for line in out.splitlines()]
    assert [(event["sequence"], event["body"]) for event in events] == [(1, "1"), (2, "2")]
    told = _told(output[0], "info", "warning", "error")
    assert [each for each in told if not each.startswith(("node.", "ledger."))] == ["nats.lost", "nats.back"]


def test_dev_takes_events_over_http_with_a_token_that_it_keeps(tmp_path: Path) -> None:
    terminal, told = Terminal(tmp_path, ""), []
    for _ in range(2):
        with terminal.start("dev", "--port", str(free_port())) as process:
            line = line_with(process.stdout, "HTTP on ")
            url, token = line.split()[2].removesuffix(","), line.split()[-1]
            answer = httpx.post(
                f"{url}/v1/tenants/acme/events/order.created",
                json={"order": 7},
                headers={"authorization": f"Bearer {token}"},
            )
            assert (answer.status_code, answer.json()["matched"]) == (202, 0)
            told.append((url, token))
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, err
            assert token.split("_", 2)[2] not in err
    assert told[0][1] == told[1][1]
    kept = tmp_path / ".angarium" / "token"
    assert kept.read_text().strip() == told[0][1]
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_second_one_in_the_directory_says_so_at_once(tmp_path: Path) -> None:
    with dev(tmp_path, signal.SIGHUP) as (terminal, _):
        error = terminal.failed("dev")
        assert f"another angarium dev runs in {tmp_path}/.angarium (pid " in error
        assert f"its NATS is {terminal.environment['ANGARIUM_NATS']}): use it, stop it, or give" in error


def test_a_port_that_was_taken_is_kept_after_restarts(tmp_path: Path) -> None:
    terminal, urls = Terminal(tmp_path, ""), []
    with socket.socket() as taken:
        with suppress(OSError):  # Another process may have it.
            taken.bind(("127.0.0.1", 4222))
            taken.listen()
        for _ in range(2):
            with terminal.start("dev") as process:
                urls.append(line_with(process.stdout, "ready: NATS on ").split()[3])
                process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=PATIENCE_S)
                assert ("port 4222 is taken" in err) == (len(urls) == 1)
    assert urls[0] == urls[1]
    assert not urls[0].endswith(":4222")


def test_the_steps_of_the_start_are_shown_in_order(tmp_path: Path) -> None:
    with dev(tmp_path, signal.SIGTERM) as (_, output):
        pass
    notes = [line for line in output[0].splitlines() if not line.startswith("20")]
    assert [note.split()[0] for note in notes] == ["starting", "nats-server", "claiming"]
    assert "after a crash that takes about 8 s" in notes[-1]


def _told(err: str, *levels: str) -> list[str]:
    """The names of the lines of the log at these levels."""
    lines = [line.split() for line in err.splitlines() if line.startswith("20")]
    return [line[2] for line in lines if line[1] in levels]


def test_the_store_stays_and_is_used_again(tmp_path: Path) -> None:
    with dev(tmp_path, signal.SIGTERM) as (terminal, _):
        terminal.done("receiver", "put", "acme.kept", "--url", "https://example.com", "--unsigned")
    with dev(tmp_path, signal.SIGTERM) as (terminal, _):
        assert terminal.json("receiver", "get", "acme.kept")["url"] == "https://example.com"
