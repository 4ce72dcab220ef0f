"""A backlog that real processes give up: trimmed, skipped, forgotten, or removed with its receiver."""

import asyncio

from streams.nats.answers import StoredMessage
from tests.support.fleet.fleet import Fleet, names
from tests.support.processes.commands import Terminal

RECEIVER = "acme.slow"


async def publish(fleet: Fleet, *numbers: int) -> None:
    async def one(number: int) -> None:
        await fleet.js.publish(names.publish_to(RECEIVER), b"{}", {"Angarium-Id": f"e{number}"})

    for start in range(0, len(numbers), 500):
        await asyncio.gather(*(one(number) for number in numbers[start : start + 500]))


async def letters(fleet: Fleet) -> list[StoredMessage]:
    return await fleet.read(names.dead_letters, names.dead(RECEIVER))


async def told(fleet: Fleet) -> list[tuple[str, str, str]]:
    """Returns the number, the reason and the event of each dead letter."""
    members = ("Angarium-Sequence", "Angarium-Reason", "Angarium-Id")
    found = [tuple(letter.headers[name] for name in members) for letter in await letters(fleet)]
    return [(number, reason, event) for number, reason, event in found]


async def test_waiting_events_are_trimmed_skipped_forgotten_and_removed(
    fleet: Fleet, terminal: Terminal
) -> None:
    async def typed(*arguments: str) -> str:
        return await asyncio.to_thread(terminal.done, "receiver", *arguments)

    await fleet.configure([RECEIVER], paused=True, backlog_max=5)
    await fleet.start_ready()
    await publish(fleet, *range(1, 9))

    async def trimmed() -> bool:
        return len(await told(fleet)) == 3

    await fleet.until_true(trimmed, "the oldest three are dead letters")
    assert await typed("skip", RECEIVER) == f"number 4 of {RECEIVER} (e4) is now a dead letter\n"
    expected = [*((f"{n}", "overflow", f"e{n}") for n in (1, 2, 3)), ("4", "skipped", "e4")]

    async def skipped() -> bool:
        return await told(fleet) == expected

    await fleet.until_true(skipped, "the event that was skipped is one, too")
    assert await typed("forget", RECEIVER, "--yes") == f"{RECEIVER} has no waiting events any more\n"
    await publish(fleet, 9, 10)
    assert (await fleet.ask("inspect", RECEIVER))["next_sequence"] == 9
    assert await typed("rm", RECEIVER, "--yes") == f"removed {RECEIVER}\n"
    await fleet.configure([RECEIVER])
    await publish(fleet, 11, 12)
    arrivals = fleet.sink.arrivals[RECEIVER]
    await fleet.until(lambda: len(arrivals) == 2, "what came since has arrived")
    assert [(each.sequence, each.event_id) for each in arrivals] == [(11, "e11"), (12, "e12")]
    assert await told(fleet) == expected

    async def counted() -> bool:
        counters = (await fleet.ask("inspect", RECEIVER))["counters"]
        return (counters["dead"], counters["discarded"], counters["delivered"]) == (4, 6, 2)

    await fleet.until_true(counted, "each event has been counted as what became of it")


async def test_each_is_a_dead_letter_once_despite_a_kill(fleet: Fleet) -> None:
    count, kept = 3000, 10
    await fleet.configure([RECEIVER], paused=True)
    node = await fleet.start_ready()
    await publish(fleet, *range(1, count + 1))
    await fleet.configure([RECEIVER], paused=True, backlog_max=kept)

    async def buried(number: int) -> bool:
        info = await fleet.js.stream_info(names.dead_letters)
        return info is not None and info.messages >= number

    await fleet.until_true(lambda: buried(700), "some are buried")
    await node.kill()
    await fleet.start_ready("two")
    await fleet.until_true(lambda: buried(count - kept), "all but a few are")
    shown = await fleet.ask("inspect", RECEIVER)
    assert shown["backlog"] == kept
    found = await told(fleet)
    assert sorted(int(number) for number, _, _ in found) == list(range(1, count - kept + 1))
    assert {reason for _, reason, _ in found} == {"overflow"}
    assert len({event for _, _, event in found}) == count - kept
