"""`angarium dead` in its own process: letters are listed, dropped, and sent again to live receivers."""

import asyncio
import base64
import random
import signal
from collections import Counter
from itertools import count
from pathlib import Path

import msgspec
import pytest

from angarium.cli import main
from streams.dead_letters.letters import REASONS, REQUESTS_MAX
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.support.fleet.fleet import SHARDS, Fleet, names
from tests.support.fleet.sink import Reply
from tests.support.processes.commands import PATIENCE_S, Terminal
from tests.support.processes.nodes import LOCKS, shortened

BILLING = "acme.billing"
PAUSED = '{\n  "receiver": "own.er",\n  "paused": %s\n}\n'


async def bury(js: JetStream, receiver: str, number: int, data: bytes = b"{}", **headers: str) -> int:
    """A letter as a node writes it; returns its sequence."""
    usual = {
        "Angarium-Id": f"{receiver}:e{number}", "Nats-Msg-Id": f"{receiver}:{number}",
        "Angarium-Reason": "rejected", "Angarium-Sequence": str(number), "Angarium-Attempts": "5",
    }  # fmt: skip
    given = {f"Angarium-{name.capitalize()}": value for name, value in headers.items()}
    answer = await js.publish(names.dead(receiver), data, usual | given)
    assert isinstance(answer, Stored)
    return answer.position


def test_the_help_lists_all_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["dead", "--help"]) == 0
    assert f"Reasons: {', '.join(REASONS)}." in " ".join(capsys.readouterr().out.split())


async def buried(js: JetStream) -> int:
    """Counts the dead letters."""
    info = await js.stream_info(names.dead_letters)
    assert info is not None
    return info.messages


async def redrive_and_kill(fleet: Fleet, terminal: Terminal, after: int) -> int:
    """Kill a redrive as soon as a number of letters was sent again; returns how it ended."""
    sent = asyncio.Event()
    numbers = count(1)
    heard = await fleet.js.wire.subscribe(
        f"{names.prefix}.deliver.>", lambda _: sent.set() if next(numbers) == after else None
    )
    redrive = await asyncio.to_thread(terminal.start, "dead", "redrive", "acme")
    with redrive:
        await fleet.until(sent.is_set, f"{after} letters are redriven")
        redrive.kill()
    await heard.unsubscribe()
    return redrive.wait(PATIENCE_S)


# ---- with a node


async def test_an_event_that_was_rejected_is_redriven(fleet: Fleet, terminal: Terminal) -> None:
    """The receiver refuses five times; then it is repaired, and the event is sent again."""
    fleet.sink.manners[BILLING] = lambda request: Reply(422 if request <= 5 else 200)
    await fleet.configure([BILLING], retry={"base_s": 0.05, "rejected_attempts": 5})
    await fleet.start_ready()
    publish = ("publish", BILLING, "--type", "order.created", "--id")
    await asyncio.to_thread(terminal.done, *publish, "order-1", '{"n": 1}')
    await asyncio.to_thread(terminal.done, *publish, "order-2", '{"n": 2}')
    arrivals = fleet.sink.arrivals[BILLING]
    await fleet.until(lambda: len(arrivals) == 6, "the next event is delivered")

    async def dead() -> bool:
        return await buried(fleet.js) == 1

    await fleet.until_true(dead, "the first one is a dead letter")
    row = await asyncio.to_thread(terminal.json, "dead", "list")
    assert row.pop("at").endswith("Z")
    assert row == {
        "letter": 1, "receiver": BILLING, "number": 1, "reason": "rejected", "attempts": 5, "status": 422,
        "type": "order.created", "id": "order-1", "bytes": 8,
    }  # fmt: skip
    assert await asyncio.to_thread(terminal.done, "dead", "redrive", "1") == "redriven 1 letter\n"

    await fleet.until(lambda: len(arrivals) == 7, "the event arrives once more")
    assert [(each.sequence, each.event_id) for each in arrivals[4:]] == [
        (1, "order-1"), (2, "order-2"), (3, "order-1"),
    ]  # fmt: skip
    request = fleet.sink.latest[BILLING]
    assert request.body == b'{"n": 1}'
    again = ("angarium-again", "angarium-event", "content-type", "angarium-attempt")
    assert [request.headers[name] for name in again] == ["dead-1", "order.created", "application/json", "1"]
    assert await buried(fleet.js) == 0


async def test_a_redrive_that_is_killed_continues_and_sends_nothing_twice(
    fleet: Fleet, tmp_path: Path, rng: random.Random
) -> None:
    """JetStream must have forgotten the ids before the command is run again, as after days."""
    with shortened(LOCKS):
        terminal = Terminal(tmp_path, fleet.server.url)
    terminal.environment["ANGARIUM_SHARDS"] = str(SHARDS)
    receivers = [f"acme.r{number}" for number in range(20)]
    await fleet.configure(receivers)
    await fleet.start_ready()
    info = await fleet.js.stream_info(names.deliveries)
    assert info is not None
    await fleet.js.stream_update(info.config | {"duplicate_window": 100_000_000})
    letters = left = 0
    while not left:
        # A redrive that is done before it can be killed shows nothing: try again with more letters.
        for number in range(letters // 20 + 1, letters // 20 + 51):
            await asyncio.gather(*(bury(fleet.js, receiver, number) for receiver in receivers))
        letters += 1000
        status = await redrive_and_kill(fleet, terminal, after=rng.randrange(300, 750))
        left = await buried(fleet.js)
    assert left < letters
    assert status == -signal.SIGKILL

    done = await asyncio.to_thread(terminal.run, "dead", "redrive", "acme", "--json")
    assert done.returncode == 0, done.stderr
    assert "was interrupted" in done.stderr
    told = msgspec.json.decode(done.stdout)
    # What the killed command had asked for may have been done after the count.
    assert left - REQUESTS_MAX <= told["redriven"] + len(told["finished"]) <= left
    await fleet.until(lambda: fleet.sink.total >= letters, "all have arrived")
    events = Counter(each.event_id for receiver in receivers for each in fleet.sink.arrivals[receiver])
    assert len(events) == letters
    assert set(events.values()) == {1}
    assert await buried(fleet.js) == 0


# ---- without one


@pytest.fixture(scope="module")
def alone(nats_url: str, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """One installation for all tests that need no node, each of which has a tenant of its own."""
    terminal = Terminal(tmp_path_factory.mktemp("cli"), nats_url)
    terminal.done("setup")
    return terminal


def numbers(listed: str) -> list[int]:
    """Which letters a list shows, in JSON."""
    return [msgspec.json.decode(line)["letter"] for line in listed.splitlines()]


async def test_letters_are_listed_by_receiver_reason_and_time(alone: Terminal, js: JetStream) -> None:
    first = await bury(js, "list.one", 1)
    second = await bury(js, "list.two", 1, reason="expired")
    third = await bury(js, "list.one", 2, reason="skipped")

    def listed(*arguments: str) -> list[int]:
        return numbers(alone.done("dead", "list", "--json", *arguments))

    assert listed("list") == [third, second, first]
    assert listed("list.one") == [third, first]
    assert listed("list", "--reason", "expired", "--reason", "skipped") == [third, second]
    assert listed("list", "--since", "1h") == [third, second, first]
    assert listed("list", "--until", "1h") == []
    assert listed("list", "--until", "2999-01-01T00:00:00Z", "--limit", "2") == [third, second]
    table = alone.run("dead", "list", "list", "--limit", "1")
    assert table.stdout.splitlines()[0].startswith("letter\treceiver\tnumber\treason\tat")
    assert table.stdout.splitlines()[1].startswith(f"{third}\tlist.one\t2\tskipped\t")
    assert "this is the newest one; --limit 0 lists all" in table.stderr
    malformed = await bury(js, "list._events", 1, reason="malformed")
    assert listed("list._events") == [malformed]


async def test_an_empty_list_of_an_unknown_name_says_so(alone: Terminal) -> None:
    assert (
        "note: tenant nobody has no receivers; angarium receiver list"
        in alone.run("dead", "list", "nobody").stderr
    )
    assert "note: there is no receiver nobody.x;" in alone.run("dead", "list", "nobody.x").stderr
    alone.done("receiver", "put", "quiet.one", "--url", "https://example.com/", "--unsigned")
    assert [alone.run("dead", "list", name).stderr for name in ("quiet", "quiet.one")] == ["", ""]


async def test_a_letter_is_shown_with_its_headers_and_its_body(alone: Terminal, js: JetStream) -> None:
    text = await bury(
        js, "show.one", 7, b'{"n":\n 1}\x1b[2J', problem="because", response="no %C3%A9%0A%1B[2J"
    )
    shown = alone.done("dead", "show", str(text))
    assert shown.startswith(f"letter {text}: show.one #7, rejected, 20")
    assert "Angarium-Problem   because\n" in shown
    assert "Angarium-Response  no é\\n\\x1b[2J\n" in shown
    assert shown.endswith('\n\n{"n":\n 1}\\x1b[2J\n')
    document = alone.json("dead", "show", str(text))
    assert (document["body"], document["number"]) == ('{"n":\n 1}\x1b[2J', 7)
    assert document["headers"]["Angarium-Attempts"] == "5"
    assert document["response"] == "no é\n\x1b[2J"
    data = await bury(js, "show.one", 8, b"\xff\x00")
    assert "a binary body of 2 bytes" in alone.done("dead", "show", str(data))
    assert base64.b64decode(alone.json("dead", "show", str(data))["body_base64"]) == b"\xff\x00"
    gone = await bury(js, "show.one", 9, b"", body="gone")
    assert alone.json("dead", "show", str(gone))["response"] is None
    assert "the body was gone" in alone.done("dead", "show", str(gone))
    assert alone.json("dead", "show", str(gone))["body"] is None
    assert "there is no letter 999999" in alone.failed("dead", "show", "999999")


async def test_letters_are_dropped_if_that_is_meant(alone: Terminal, js: JetStream) -> None:
    letters = [await bury(js, "drop.one", number) for number in range(1, 7)]
    asked = "this deletes 6 letters for good: give --yes to confirm"
    assert asked in alone.failed("dead", "drop", "drop", status=2)
    assert alone.done("dead", "drop", "drop", "--limit", "2", "--yes") == "dropped 2 letters\n"
    assert alone.done("dead", "drop", str(letters[2]), "--yes") == "dropped 1 letter\n"
    done = alone.run("dead", "drop", str(letters[2]), str(letters[3]), "--yes", "--json")
    assert (done.returncode, done.stdout) == (1, '{\n  "dropped": 1\n}\n')
    assert f"there is no letter {letters[2]}" in done.stderr
    assert numbers(alone.done("dead", "list", "drop", "--json")) == letters[:3:-1]
    assert alone.json("dead", "drop", "drop.one", "--reason", "rejected", "--yes") == {"dropped": 2}
    assert alone.json("dead", "drop", "drop.one") == {"dropped": 0}


async def test_letters_are_redriven_and_the_others_are_named(alone: Terminal, js: JetStream) -> None:
    alone.done("receiver", "put", "again.one", "--url", "https://x.example/")
    letters = [await bury(js, "again.one", number) for number in range(1, 5)]
    letters.append(await bury(js, "again.one", 5, b"", body="gone"))
    letters.append(await bury(js, "again.one", 6, b"", problem="Angarium-Type: no"))
    assert alone.done("dead", "redrive", "again", "--limit", "1") == "redriven 1 letter\n"
    done = alone.run("dead", "redrive", "again.one", "--reason", "rejected")
    told = done.stdout.splitlines()
    assert done.stderr == ""
    assert told[0] == "redriven 3 letters"
    assert told[1].startswith(f"1 letter ({letters[4]}) cannot be redriven, since only the headers could be")
    assert told[2].startswith(f"1 letter ({letters[5]}) cannot be redriven, since the event is malformed")
    done = alone.run("dead", "redrive", str(letters[4]), "--json")
    assert done.returncode == 1
    assert "some of these letters could not be sent" in done.stderr
    assert msgspec.json.decode(done.stdout) == {
        "redriven": 0, "finished": [], "left": {"gone": [letters[4]]}, "stopped": None,
    }  # fmt: skip
    assert f"there is no letter {letters[0]}" in alone.run("dead", "redrive", str(letters[0])).stderr


async def test_a_full_stream_ends_it(alone: Terminal, js: JetStream) -> None:
    alone.done("receiver", "put", "full.one", "--url", "https://x.example/")
    for number in range(1, 4):
        await bury(js, "full.one", number)
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_msgs": info.messages + 2})
    done = alone.run("dead", "redrive", "full")
    await js.stream_update(info.config)
    assert (done.returncode, done.stdout) == (1, "redriven 2 letters\n")
    assert "the stream of deliveries accepts no more: maximum messages exceeded" in done.stderr
    assert "run it again when events are settled" in done.stderr
    assert alone.done("dead", "redrive", "full") == "redriven 1 letter\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("redrive",), "which letters? give numbers, a receiver, a tenant, or --all"),
        (("drop",), "which letters?"),
        (("redrive", "1", "acme.billing"), "give letter numbers, or one receiver or tenant"),
        (("drop", "1", "--reason", "expired"), "give letter numbers or selecting flags, not both"),
        (("drop", "1", "2", "--limit", "1"), "give letter numbers or selecting flags, not both"),
        (("drop", "1", "--all"), "give letter numbers or selecting flags, not both"),
        (("list", "--reason", "late"), "--reason late: unknown reason; use one of expired, attempts"),
        (("list", "--since", "yesterday"), "--since: 'yesterday' is not a time"),
        (("list", "--until", "2026-01-31T12:00:00"), "is not a time; write an age"),
        (("list", "1acme"), "tenant '1acme'"),
        (("show", "0"), "'0' is not the number of a letter"),
    ],
)
def test_wrong_usage_of_dead_commands_names_the_remedy(
    alone: Terminal, arguments: tuple[str, ...], words: str
) -> None:
    assert words in alone.failed("dead", *arguments, status=2)


async def test_owners_are_asked_to_skip_and_to_forget(alone: Terminal, js: JetStream) -> None:
    """This test is the owner."""
    answers = {
        "skip": b'{"ok": false, "error": {"code": "nothing_waits", "message": "nothing waits"}}',
        "forget": b'{"ok": true, "discarded": 3, "next_sequence": 8}',
        "inspect": b'{"ok": true, "backlog": 3}',
    }

    def answer(message: Message) -> None:
        verb = message.subject.split(".")[2]
        answering.append(asyncio.ensure_future(js.wire.publish(message.reply, answers[verb])))

    answering: list[asyncio.Future[None]] = []
    await js.wire.subscribe("angarium.ctl.*.own.er", answer)
    await js.check()

    async def typed(*arguments: str) -> tuple[int, str]:
        done = await asyncio.to_thread(alone.run, "receiver", *arguments)
        return done.returncode, done.stdout + done.stderr

    assert await typed("skip", "own.er") == (1, "angarium: nothing waits\n")
    answers["skip"] = b'{"ok": true, "sequence": 7, "event_id": "order-7"}'
    assert await typed("skip", "own.er") == (0, "number 7 of own.er (order-7) is now a dead letter\n")
    assert await typed("skip", "own.er", "--json") == (0, '{\n  "sequence": 7,\n  "event_id": "order-7"\n}\n')
    answers |= {"pause": b'{"ok": true}', "resume": b'{"ok": true}'}
    assert await typed("pause", "own.er", "--json") == (0, PAUSED % "true")
    resumed = '{\n  "receiver": "own.er",\n  "paused": false,\n  "forgotten_pace": null\n}\n'
    assert await typed("resume", "own.er", "--json") == (0, resumed)
    assert await typed("resume", "own.er") == (0, "own.er is resumed\n")
    status, said = await typed("forget", "own.er")
    assert (status, "this discards 3 events waiting for own.er: give --yes to confirm" in said) == (2, True)
    assert await typed("forget", "own.er", "--yes") == (0, "own.er has no waiting events any more\n")
    answers["inspect"] = b'{"ok": true, "backlog": 0}'
    assert await typed("forget", "own.er") == (0, "own.er has no waiting events any more\n")
