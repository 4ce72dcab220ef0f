"""The commands, each in its own process with a real nats-server, as far as they need no node."""

import base64
import re
import signal
import subprocess

import msgspec
import pytest

from streams.nats.jetstream import JetStream
from tests.support.processes.commands import COMMAND, PATIENCE_S, SHARDS, Terminal, line_with

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
URL = "https://example.com/hook"
NODE = b'{"v":1,"node":"%b","started_at":0,"version":"1","heartbeat":1,"ttl_s":%d}'


@pytest.fixture(scope="module")
def terminal(nats_url: str, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """One installation for all tests, each of which has a receiver of its own."""
    terminal = Terminal(tmp_path_factory.mktemp("cli"), nats_url)
    made = terminal.done("setup")
    assert "stream ANGARIUM_DELIVERIES of angarium.deliver.*.*" in made
    return terminal


# ---- setup


def test_setup_again_changes_nothing(terminal: Terminal) -> None:
    said = terminal.done("setup").splitlines()
    assert said[0] == "everything already exists"
    assert said[2] == "stream\troom\tkeeps"
    assert said[4].startswith("ANGARIUM_DELIVERIES\t4 GiB\twaiting events")
    assert said[-2].endswith("takes 3,579,139 events of 1 KiB: 41 a second for a day.")
    assert max(map(len, said)) <= 80
    told = terminal.json("setup")
    assert told["made"] == []
    assert {each["stream"]: each["max_bytes"] >> 30 for each in told["rooms"]} == {
        "ANGARIUM_EVENTS": 4, "ANGARIUM_DELIVERIES": 4, "ANGARIUM_JOURNAL": 2, "ANGARIUM_DEAD": 1,
        "ANGARIUM_LATER": 1,
    }  # fmt: skip


def test_setup_never_changes_the_number_of_shards(terminal: Terminal) -> None:
    assert f"setting shards says 8: set it to {SHARDS} (--shards, ANGARIUM_SHARDS" in terminal.failed(
        "setup", "--shards", "8"
    )


def test_a_node_refuses_an_installation_with_another_number_of_shards(terminal: Terminal) -> None:
    assert f"setting shards says 8: set it to {SHARDS} (--shards, ANGARIUM_SHARDS" in terminal.failed(
        "node", "--shards", "8"
    )


def test_a_node_refuses_to_start_without_an_installation(terminal: Terminal) -> None:
    assert "run angarium setup" in terminal.failed("node", "--prefix", "nowhere")


# ---- publish


async def test_publish_shows_where_the_event_is(terminal: Terminal, js: JetStream) -> None:
    shown = terminal.json("publish", "acme.direct", '{"order": 7}', "--type", "order.created")
    assert shown["stream"] == "ANGARIUM_DELIVERIES"
    assert shown["duplicate"] is False
    message = await js.message(shown["stream"], shown["position"])
    assert message is not None
    assert message.subject.endswith(".acme.direct")
    assert message.data == b'{"order": 7}'
    assert message.headers == {
        "Angarium-Id": shown["id"],
        "Nats-Msg-Id": f"acme.direct:{shown['id']}",
        "Angarium-Type": "order.created",
    }


async def test_publish_to_a_tenant_reaches_all_subscribers(terminal: Terminal, js: JetStream) -> None:
    shown = terminal.json("publish", "acme", "{}", "--type", "order.created", "--id", "order-7")
    assert (shown["stream"], shown["id"]) == ("ANGARIUM_EVENTS", "order-7")
    message = await js.message(shown["stream"], shown["position"])
    assert message is not None
    assert message.subject.endswith(".acme.order.created")
    assert message.headers == {
        "Angarium-Id": "order-7",
        "Nats-Msg-Id": "acme:order-7",
    }


async def test_publish_takes_any_bytes_from_stdin(terminal: Terminal, js: JetStream) -> None:
    body = bytes(range(256))
    printed = terminal.done("publish", "acme.bytes", "--content-type", "text/x", stdin=body)
    stream, position, _ = printed.split()
    message = await js.message(stream, int(position))
    assert message is not None
    assert message.data == body


@pytest.mark.parametrize(
    ("arguments", "stdin", "body"),
    [(("-",), b'{"n": 1}', b'{"n": 1}'), (("-", "--lines"), b"1\n", b"1"), (("--data", "-"), b"", b"-")],
)
async def test_a_dash_is_the_standard_input_and_no_body(
    terminal: Terminal, js: JetStream, arguments: tuple[str, ...], stdin: bytes, body: bytes
) -> None:
    shown = msgspec.json.decode(terminal.done("publish", "acme.dash", *arguments, "--json", stdin=stdin))
    message = await js.message(shown["stream"], shown["position"])
    assert message is not None
    assert message.data == body


def test_publish_of_lines_keeps_their_order(terminal: Terminal) -> None:
    printed = terminal.done(
        "publish", "acme.lines", "--lines", "--json", stdin=b'{"n":1}\n{"n":2}\n{"n":3}\n'
    )
    positions = [msgspec.json.decode(line)["position"] for line in printed.splitlines()]
    assert len(positions) == 3
    assert positions == sorted(positions)


def test_a_repeat_is_reported_and_is_not_a_failure(terminal: Terminal) -> None:
    first = terminal.json("publish", "acme.twice", "{}", "--id", "order-7")
    assert terminal.json("publish", "acme.twice", "{}", "--id", "order-7") == first | {"duplicate": True}
    other = terminal.json("publish", "acme.other", "{}", "--id", "order-7")
    assert other["duplicate"] is False


def test_publish_says_why_it_was_refused(terminal: Terminal) -> None:
    terminal.done("receiver", "put", "acme.large", "--url", URL, "--unsigned")
    error = terminal.failed("publish", "acme.large", "--lines", stdin=b"1\n" + b"2" * 400_000 + b"\n3\n")
    assert "line 2: refused: the event is larger than max_body" in error
    assert "(1 published before it)" in error


@pytest.mark.parametrize("body", [b"hello", b'{"name": "\xff"}', b"[" * 100_000])
def test_publish_warns_of_a_body_that_is_not_json(terminal: Terminal, body: bytes) -> None:
    done = terminal.run("publish", "acme.plain", stdin=body)
    assert (done.returncode, "the body is not JSON" in done.stderr) == (0, True)


def test_publish_notes_once_that_no_receiver_gets_it(terminal: Terminal) -> None:
    done = terminal.run("publish", "acme.nowhere", "--lines", stdin=b"1\n2\n3\n")
    assert (done.returncode, done.stdout.count("\n")) == (0, 3)
    assert done.stderr == (
        "note: there is no receiver acme.nowhere; its events become dead letters (unknown_receiver), "
        "see angarium dead list acme.nowhere\n"
    )
    terminal.done("receiver", "put", "listeners.one", "--url", URL, "--unsigned", "--event", "order.>")
    done = terminal.run("publish", "listeners", "--lines", "--type", "invoice.paid", stdin=b"1\n2\n")
    assert (done.returncode, done.stdout.count("\n")) == (0, 2)
    assert done.stderr == (
        "note: no receiver of listeners subscribes to invoice.paid; such events are dropped\n"
    )
    for target in ("listeners", "listeners.one"):
        done = terminal.run("publish", target, "{}", "--type", "order.created")
        assert (done.returncode, done.stderr) == (0, "")


# ---- receivers


def test_a_receiver_from_first_to_last(terminal: Terminal) -> None:
    put = terminal.json("receiver", "put", "acme.first", "--url", URL, "--rate", "10/minute", "--burst", "2")
    assert put["replaced"] is False
    assert len(base64.b64decode(put["secret"].removeprefix("whsec_"))) == 32
    assert terminal.json("receiver", "get", "acme.first") == {
        "url": URL,
        "rate": {"limit": 10.0, "per": "minute", "burst": 2},
        "secrets": ["…"],
    }
    row = next(row for row in terminal.json("receiver", "list", "acme") if row["receiver"] == "acme.first")
    assert (row["url"], row["signed"], row["paused"], row["problem"]) == (URL, True, False, None)
    assert "acme.first\thttps://example.com/hook\tstrict" in terminal.done("receiver", "list")
    terminal.done("receiver", "put", "acme.words", f'{{"url": "{URL}", "rate": "300/min"}}')
    rates = {row["receiver"]: row["rate"] for row in terminal.json("receiver", "list", "acme")}
    assert (rates["acme.first"], rates["acme.words"]) == ("10/minute", "300/minute")
    refusal = terminal.failed("receiver", "rm", "acme.first", status=2)
    assert "this removes acme.first: give --yes to confirm" in refusal
    assert terminal.done("receiver", "rm", "acme.first", "--yes") == "removed acme.first\n"
    assert "there is no receiver acme.first" in terminal.failed("receiver", "get", "acme.first")
    assert "there is no receiver acme.first" in terminal.failed("receiver", "rm", "acme.first")


def test_all_flags_become_members(terminal: Terminal) -> None:
    flags = [
        "--url", URL, "--order", "relaxed", "--concurrency", "4", "--timeout-s", "5", "--base-s", "1",
        "--cap-s", "60", "--max-age-s", "3600", "--max-attempts", "9", "--rejected-attempts", "2",
        "--offline-after-s", "30", "--disable-after-s", "600", "--dedup-window", "64", "--backlog-max", "10",
        "--event", "order.>", "--event", "user.*", "--header", "x-team=a=b", "--paused", "--unsigned",
    ]  # fmt: skip
    terminal.done("receiver", "put", "acme.flags", *flags)
    assert terminal.json("receiver", "get", "acme.flags") == {
        "url": URL,
        "order": "relaxed",
        "concurrency": 4,
        "timeout_s": 5.0,
        "retry": {
            "base_s": 1.0, "cap_s": 60.0, "max_age_s": 3600.0, "max_attempts": 9, "rejected_attempts": 2,
        },
        "offline": {"after_s": 30.0, "disable_after_s": 600.0},
        "dedup_window": 64,
        "backlog_max": 10,
        "events": ["order.>", "user.*"],
        "headers": {"x-team": "…"},
        "paused": True,
        "secrets": [],
    }  # fmt: skip


def test_json_comes_as_an_argument_or_from_a_file(terminal: Terminal) -> None:
    policy = f'{{"url": "{URL}", "secrets": ["{SECRET}"]}}'
    assert terminal.json("receiver", "put", "acme.argument", policy)["secret"] is None
    assert (
        terminal.json("receiver", "put", "acme.file", "--file", "-", stdin=policy.encode())["secret"] is None
    )


def test_secrets_stay_and_are_changed_with_an_overlap(terminal: Terminal) -> None:
    put = ("receiver", "put", "acme.signed")
    assert terminal.json(*put, "--url", URL, "--secret", SECRET)["secret"] is None
    said = terminal.done(*put, "--url", URL).splitlines()
    assert said[0].startswith("put acme.signed again, unchanged (revision ")
    assert said[1:] == ["one secret signs the requests"]
    said = terminal.done(*put, "--add-secret").splitlines()
    assert said[1] == "  secrets: 1 → 2 (1 new)"
    assert said[2].startswith("secret: whsec_")
    assert said[3] == "2 secrets sign the requests, the newest first; --drop-old-secrets keeps only that one"
    assert terminal.json("receiver", "get", "acme.signed")["secrets"] == ["…", "…"]
    done = terminal.json(*put, "--drop-old-secrets")
    assert done["changes"] == [{"member": "secrets", "old": "2", "new": "1", "lost": True}]
    error = terminal.failed(*put, "--url", URL, "--unsigned", status=2)
    assert "acme.signed would lose secrets: 1 → none: --add-secret keeps the old ones" in error
    assert "requests are not signed" in terminal.done(*put, "--url", URL, "--unsigned", "--replace")


def test_the_output_of_get_can_be_changed_and_put(terminal: Terminal) -> None:
    flags = ("--url", URL, "--secret", SECRET, "--header", "x-team=hush", "--order", "relaxed")
    terminal.done("receiver", "put", "acme.round", *flags)
    shown = terminal.done("receiver", "get", "acme.round")
    put = ("receiver", "put", "acme.round", "--file", "-")
    assert "put acme.round again, unchanged (revision " in terminal.done(*put, stdin=shown.encode())
    changed = shown.replace("relaxed", "strict")
    assert "  order: relaxed → strict\n" in terminal.done(*put, stdin=changed.encode())
    error = terminal.failed("receiver", "put", "acme.round", "--url", URL, status=2)
    assert "acme.round would lose headers.x-team: … → none: repeat it" in error
    error = terminal.failed("receiver", "put", "acme.rounder", "--file", "-", status=2, stdin=shown.encode())
    assert "none is stored for acme.rounder: leave secrets out to get a new one" in error


def test_secrets_and_header_values_are_never_shown(terminal: Terminal) -> None:
    url = "https://example.com/hook?token=hush-query"
    flags = ("--url", url, "--secret", SECRET, "--header", "authorization=hush-header")
    shown = terminal.done("receiver", "put", "acme.hush", *flags)
    shown += terminal.done("receiver", "get", "acme.hush") + terminal.done("receiver", "list")
    assert SECRET.removeprefix("whsec_") not in shown
    assert "hush-header" not in shown
    assert "hush-query" not in terminal.done("receiver", "list")


async def test_secrets_that_were_put_into_the_bucket_in_the_wrong_shape_are_never_shown(
    terminal: Terminal, js: JetStream
) -> None:
    url = "https://example.com"
    for members in (
        {"url": url, "secrets": SECRET, "headers": "Bearer hush"},
        {"url": url, "secret": SECRET, "headres": {"authorization": "Bearer hush"}},
    ):
        await js.publish("$KV.angarium_receivers.acme.wrong", msgspec.json.encode(members))
        shown = terminal.done("receiver", "get", "acme.wrong")
        assert msgspec.json.decode(shown)["url"] == url
        assert SECRET.removeprefix("whsec_") not in shown
        assert "Bearer hush" not in shown
    gone = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
    await js.publish("$KV.angarium_receivers.acme.wrong", b"", gone)


def test_every_field_that_is_wrong_is_named(terminal: Terminal) -> None:
    policy = '{"url": "ftp://x", "rate": {"limit": 0}, "order": "fifo", "colour": 1, "labels": {}}'
    error = terminal.failed("receiver", "put", "acme.wrong", policy, status=2)
    for field in ("rate.limit:", "order:", "colour: unknown member", "labels: reserved"):
        assert field in error
    assert "url: must begin with https://" in terminal.failed(
        "receiver", "put", "acme.wrong", "--url", "ftp://x", status=2
    )


async def test_an_invalid_configuration_hides_no_other(terminal: Terminal, js: JetStream) -> None:
    bucket = "$KV.angarium_receivers."
    strange = {"acme.text": b'{"url": "\xff"}', "acme.deep": b"[" * 5000, "acme.x.y": b"[]", "acme": b""}
    for key, value in {"acme.good": b'{"url": "https://example.com"}', **strange}.items():
        await js.publish(bucket + key, value)
    rows = {row["receiver"]: row["problem"] for row in terminal.json("receiver", "list", "acme")}
    assert rows["acme.good"] is None
    assert "not valid JSON" in rows["acme.text"]
    assert "not valid JSON" in rows["acme.deep"]
    for key in strange:
        await js.publish(bucket + key, b"", {"KV-Operation": "PURGE", "Nats-Rollup": "sub"})


def test_waiting_events_are_listed_even_if_no_node_has_looked_at_them(terminal: Terminal) -> None:
    terminal.done("receiver", "put", "listed.waits", "--url", URL, "--unsigned")
    terminal.done("receiver", "put", "listed.paused", "--url", URL, "--unsigned", "--paused")
    for _ in range(3):
        terminal.done("publish", "listed.waits", "{}")
    paused, waits = terminal.json("receiver", "list", "listed")
    assert (waits["phase"], waits["waiting"], waits["oldest_at"][:2]) == ("active", 3, "20")
    assert (paused["phase"], paused["waiting"], paused["oldest_at"]) == ("paused", 0, None)
    assert terminal.json("receiver", "list", "listed", "--phase", "paused") == [paused]


@pytest.mark.parametrize(
    ("url", "flags", "notes"),
    [
        ("https://example.com/", [], []),
        ("http://example.com/", [], ["--allow-http"]),
        ("http://127.0.0.1:9000/", [], ["--allow-http", "--allow-network"]),
        ("https://localhost/", [], ["localhost (loopback", "--allow-network"]),
        ("https://[fd00::1]/", [], ["--allow-network"]),
        ("http://10.1.2.3/", ["--allow-http", "--allow-network", "10.0.0.0/8"], []),
        ("https://8.8.8.8/", ["--deny-network", "8.8.8.0/24"], ["8.8.8.0/24 is denied (--deny-network)"]),
    ],
)
def test_a_url_that_nodes_may_refuse_is_noted(
    terminal: Terminal, url: str, flags: list[str], notes: list[str]
) -> None:
    done = terminal.run("receiver", "put", "acme.noted", "--url", url, "--unsigned", *flags)
    assert done.returncode == 0
    for note in notes:
        assert note in done.stderr
    assert notes or not done.stderr


def test_rm_asks_if_events_wait(terminal: Terminal) -> None:
    terminal.done("receiver", "put", "acme.waiting", "--url", URL, "--unsigned")
    terminal.done("publish", "acme.waiting", "{}")
    assert "and discards up to 1 event waiting for it: give --yes to confirm" in terminal.failed(
        "receiver", "rm", "acme.waiting", status=2
    )
    assert terminal.done("receiver", "rm", "acme.waiting", "--yes") == "removed acme.waiting\n"


@pytest.mark.parametrize(
    "command", [["inspect"], ["receiver", "pause"], ["receiver", "resume"], ["receiver", "ping"]]
)
def test_without_a_node_there_is_no_answer(terminal: Terminal, command: list[str]) -> None:
    assert "no node answered for acme.nobody: start one" in terminal.failed(*command, "acme.nobody")


# ---- doctor


def test_doctor_says_what_is_missing(terminal: Terminal) -> None:
    done = terminal.run("doctor", "--prefix", "nowhere", "--json")
    findings = msgspec.json.decode(done.stdout)
    assert done.returncode == 1
    assert [each["subject"] for each in findings if each["ok"]] == ["packages", "nats"]
    missing = [each["text"] for each in findings if not each["ok"]]
    assert missing == ["nothing is set up here (9 streams are missing, NOWHERE_EVENTS among them)"]


async def test_doctor_misses_nodes_and_names_bad_configurations(terminal: Terminal, js: JetStream) -> None:
    await js.publish("$KV.angarium_receivers.acme.bad", b'{"url": 7}')
    done = terminal.run("doctor")
    await js.publish("$KV.angarium_receivers.acme.bad", b"", {"KV-Operation": "DEL"})
    assert done.returncode == 1
    assert "no node is alive: start one (angarium node)" in done.stdout
    assert "the configuration of acme.bad is not in force: url:" in done.stdout
    assert "2 problems found" in done.stderr


async def test_doctor_names_what_is_strange_and_continues(terminal: Terminal, js: JetStream) -> None:
    strange = {
        "$KV.angarium_actors.1._owner": b"mine!",
        "$KV.angarium_actors.2._checkpoint": b'{"v":1,"created":{"ANGARIUM_EVENTS":"2026-01-31T12:00:00Z"}}',
        "$KV.angarium_nodes.odd": b"mine!",
        "$KV.angarium_nodes.even": NODE % (b"even", 60),
        "$KV.angarium_nodes.silent": NODE % (b"silent", -60),
    }
    for key, value in strange.items():
        await js.publish(key, value)
    done = terminal.run("doctor")
    for key in strange:
        await js.publish(key, b"", {"KV-Operation": "DEL"})
    assert "$KV.angarium_actors.1._owner was not written by Angarium" in done.stdout
    assert "$KV.angarium_nodes.odd was not written by Angarium" in done.stdout
    assert re.search(r"silent has sent no heartbeat for \d+ s: check its log", done.stdout)
    assert "ANGARIUM_EVENTS was recreated, or restored: restore the right one" in done.stdout
    assert "receivers" in done.stdout.splitlines()[-1]


# ---- node


def nodes_of(terminal: Terminal) -> list[str]:
    """Waits until the doctor finds all nodes, and returns its text about each."""
    done = terminal.run("doctor", "--json")
    findings = {each["subject"]: each["text"] for each in msgspec.json.decode(done.stdout)}
    return findings["nodes"].removeprefix("live nodes: ").split(", ") if done.returncode == 0 else [""]


def test_nodes_share_the_shards_and_hand_them_over(terminal: Terminal) -> None:
    options = ("node", "--log-format", "json", "--ttl-s", "10", "--node")
    with terminal.start(*options, "one") as one, terminal.start(*options, "two") as two:
        for node in (one, two):
            line_with(node.stderr, '"node.ready"')
        terminal.until(lambda: [name.split()[0] for name in nodes_of(terminal)] == ["one", "two"])
        # A terminal that is closed says so by SIGHUP.
        for node, number in ((one, signal.SIGTERM), (two, signal.SIGHUP)):
            node.send_signal(number)
            _, err = node.communicate(timeout=PATIENCE_S)
            assert node.returncode == 0, err
            assert "node.stopping" in err
            assert "Traceback" not in err


def test_a_node_below_nohup_outlives_its_terminal(terminal: Terminal) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        node = subprocess.Popen(
            [*COMMAND, "node", "--log-level", "info"], cwd=terminal.directory, env=terminal.environment,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert node.stderr is not None
    with node:
        line_with(node.stderr, "node.ready")
        node.send_signal(signal.SIGHUP)
        assert terminal.run("doctor").returncode == 0
        node.send_signal(signal.SIGTERM)
        assert "node.stopping" in node.stderr.read()
    assert node.returncode == 0


def test_a_node_that_was_killed_is_missed(terminal: Terminal) -> None:
    with terminal.start("node", "--log-format", "json", "--ttl-s", "2", "--node", "killed") as node:
        line_with(node.stderr, '"node.ready"')
        node.kill()
        node.communicate()
        terminal.until(lambda: "no node is alive" in terminal.run("doctor").stdout)


# ---- interruptions


def test_a_reader_that_has_enough_is_not_an_error_of_ours(terminal: Terminal) -> None:
    terminal.done("receiver", "put", "acme.pipe", "--url", URL, "--unsigned")
    with terminal.start("publish", "acme.pipe", "--lines", "--json") as process:
        process.stdin.write("1\n")
        process.stdin.flush()
        assert "position" in process.stdout.readline()
        process.stdout.close()
        process.stdin.write("2\n")
        process.stdin.close()
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE_S) == 141


def test_ctrl_c_is_quiet(terminal: Terminal) -> None:
    terminal.done("receiver", "put", "acme.interrupted", "--url", URL, "--unsigned")
    with terminal.start("publish", "acme.interrupted", "--lines", "--json") as process:
        process.stdin.write("1\n")
        process.stdin.flush()
        assert "position" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, err.strip()) == (130, "", "")
