"""Batches over HTTP and across kills: numbers, order, signatures, and ids that name the same events."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from angarium.delivery.signing import SIGNED_CONTENT, parse_key
from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.sink import Reply, Request

RECEIVER = "t.batched"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
COUNT, BATCH = 600, 40


def events_of(request: Request) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(request.body)["events"]
    return found


def check(seen: Sequence[Request]) -> None:
    """A number names one event, and a repeated id the same events, or fewer of them."""
    named, known = dict[int, str](), dict[str, set[int]]()
    for request in seen:
        events = events_of(request)
        numbers = [each["sequence"] for each in events]
        assert numbers == sorted(set(numbers))
        assert len(numbers) <= BATCH
        first_and_last = f"{numbers[0]}-{numbers[-1]}"
        assert request.headers["angarium-sequence"] == first_and_last
        assert request.headers["webhook-id"] == f"{RECEIVER}:{first_and_last}"
        assert request.headers["angarium-event"] == "angarium.batch"
        assert set(numbers) <= known.setdefault(first_and_last, set(numbers))
        for each in events:
            assert named.setdefault(each["sequence"], each["id"]) == each["id"]
    assert {named[number] for number in range(1, COUNT + 1)} == {f"e{number}" for number in range(COUNT)}


@pytest.mark.parametrize("order", ["strict", "relaxed"])
async def test_batches_keep_their_numbers_across_a_kill(fleet: Fleet, order: str) -> None:
    seen = list[Request]()
    fleet.sink.onlooker = lambda _, request: seen.append(request)
    fleet.sink.manners[RECEIVER] = lambda number: Reply(503 if number % 7 == 0 else 200, delay_s=0.01)
    await fleet.configure(
        [RECEIVER], order=order, batch={"max_events": BATCH}, secrets=[SECRET],
        retry={"base_s": 0.05, "cap_s": 0.05},
    )  # fmt: skip
    first = await fleet.start_ready()
    for number in range(COUNT):
        await fleet.js.publish(names.publish_to(RECEIVER), b'{"n": 1}', {"Angarium-Id": f"e{number}"})
    await fleet.until(lambda: len(seen) >= 4, "some batches came")
    await first.kill()
    await fleet.start_ready()

    async def is_settled() -> bool:
        return bool((await fleet.ask("inspect", RECEIVER))["settled_sequence"] == COUNT)

    await fleet.until_true(is_settled, "all events are settled")
    check(seen)
    last = seen[-1]
    signed = ("webhook-id", "angarium-sequence")
    content = SIGNED_CONTENT % (*(last.headers[name].encode() for name in signed), last.body)
    assert parse_key(SECRET, "secret").verify(last.headers["angarium-signature"].encode(), content)
    inspected = await fleet.ask("inspect", RECEIVER)
    assert inspected["counters"]["delivered"] == COUNT
    assert inspected["posts"] < COUNT
