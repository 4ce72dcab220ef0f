"""`angarium replay` in its own process, to a live receiver: each event is sent once more, killed or not."""

import asyncio
import random
import signal
from collections.abc import Iterator
from itertools import count

import msgspec
import pytest

from streams.nats.answers import Stored
from tests.support.fleet.fleet import Fleet, names
from tests.support.processes.commands import Terminal
from tests.support.processes.nodes import LOCKS, SNAPSHOTS, shortened
from tests.support.waiting import COMMAND_LOOK_S

BILLING = "acme.billing"


@pytest.fixture(autouse=True)
def _shortened() -> Iterator[None]:
    with shortened(LOCKS, SNAPSHOTS):
        yield


async def publish(fleet: Fleet, number: int) -> None:
    headers = {"Nats-Msg-Id": f"order-{number}", "Angarium-Type": f"order.{number % 2}"}
    assert isinstance(await fleet.js.publish(names.publish_to(BILLING), b"%d" % number, headers), Stored)


async def test_delivered_events_are_replayed_at_once_and_waiting_ones_counted(
    fleet: Fleet, terminal: Terminal
) -> None:
    """The last deliveries need not be in a snapshot yet."""
    await fleet.configure([BILLING])
    await fleet.start_ready()
    for number in range(1, 21):
        await publish(fleet, number)
    arrivals = fleet.sink.arrivals[BILLING]
    await fleet.until(lambda: len(arrivals) == 20, "all arrive")
    looked = await asyncio.to_thread(terminal.json, "replay", BILLING, "--since", "1h", "--dry-run")
    assert (looked["events"], looked["left"]) == (20, {})
    await fleet.ask("pause", BILLING)
    await publish(fleet, 21)
    done = await asyncio.to_thread(terminal.run, "replay", BILLING, "--since", "1h", "--dry-run")
    assert done.stdout.startswith("would send 20 events ")
    assert "note: 1 event left out: not settled yet (angarium inspect acme.billing)" in done.stderr


async def until_settled(fleet: Fleet, terminal: Terminal, events: int) -> None:
    """Wait until `events` events are settled and in snapshots."""

    async def told() -> bool:
        looked = await asyncio.to_thread(terminal.json, "replay", BILLING, "--since", "1h", "--dry-run")
        return bool(looked["events"] == events)

    await fleet.until_true(told, f"{events} events can be replayed", COMMAND_LOOK_S)


async def test_events_are_sent_again_under_new_numbers(fleet: Fleet, terminal: Terminal) -> None:
    await fleet.configure([BILLING])
    await fleet.start_ready()
    for number in range(1, 5):
        await publish(fleet, number)
    await until_settled(fleet, terminal, 4)
    replay = ("replay", BILLING, "--since", "1h", "--type", "order.1")
    looked = await asyncio.to_thread(terminal.done, *replay, "--dry-run")
    assert looked.startswith("would send 2 events (2 bytes), in 0s\npublished ")
    assert looked.endswith("Z\n  order.1: 2\n")
    done = await asyncio.to_thread(terminal.done, *replay)
    assert done.startswith("sent 2 events again (angarium-again: replay-")
    arrivals = fleet.sink.arrivals[BILLING]
    await fleet.until(lambda: len(arrivals) == 6, "two arrive once more")
    assert [(each.sequence, each.event_id) for each in arrivals[4:]] == [(5, "order-1"), (6, "order-3")]
    assert f"again: {fleet.sink.latest[BILLING].headers['angarium-again']})" in done
    for wrong, told in {
        (): "give --since",
        ("--since", "1h", "--resume"): "--resume goes without --since",
        ("--resume", "--type", "x"): "--resume goes without --type",
        ("--abandon", "--dry-run"): "--abandon goes without --dry-run",
    }.items():
        assert told in await asyncio.to_thread(terminal.failed, "replay", BILLING, *wrong, status=2)


async def test_a_replay_that_is_killed_is_resumed_and_sends_nothing_twice(
    fleet: Fleet, terminal: Terminal, rng: random.Random
) -> None:
    """JetStream must have forgotten the ids before the command is run again, as after days."""
    events = 600
    await fleet.configure([BILLING])
    await fleet.start_ready()
    info = await fleet.js.stream_info(names.deliveries)
    assert info is not None
    await fleet.js.stream_update(info.config | {"duplicate_window": 100_000_000})
    for number in range(1, events + 1):
        await publish(fleet, number)
    await until_settled(fleet, terminal, events)

    sent, numbers, after = asyncio.Event(), count(1), rng.randrange(10, 300)
    heard = await fleet.js.wire.subscribe(
        f"{names.prefix}.deliver.>", lambda _: sent.set() if next(numbers) == after else None
    )
    replay = ("replay", BILLING, "--since", "1h", "--rate", "500/second")
    with await asyncio.to_thread(terminal.start, *replay) as running:
        await fleet.until(sent.is_set, f"{after} events are sent again")
        running.kill()
    await heard.unsubscribe()
    assert running.returncode == -signal.SIGKILL
    await publish(fleet, 0)

    assert "--resume" in await asyncio.to_thread(terminal.failed, *replay, status=2)
    done = await asyncio.to_thread(
        terminal.run, "replay", BILLING, "--resume", "--rate", "5000/second", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert "to see whether it still runs" in done.stderr
    told = msgspec.json.decode(done.stdout)
    assert (told["sent"], told["finished"], told["purged"]) == (events, True, False)
    arrivals = fleet.sink.arrivals[BILLING]
    await fleet.until(lambda: len(arrivals) >= 2 * events + 1, "all have arrived")
    again = [each.event_id for each in arrivals[events:] if each.event_id != "order-0"]
    assert again == [f"order-{number}" for number in range(1, events + 1)]
    assert [each.sequence for each in arrivals] == list(range(1, 2 * events + 2))
