"""Stack samples, sorted by the work in which they were taken."""

import sys

import pytest

from angarium.bench.measuring.sampling import Samples, part_of


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (["hmac.py:copy", "angarium/delivery/signing.py:sign", "actors/runtime/actor.py:_go"], "signing"),
        (["angarium/delivery/http_exchange/http1.py:write", "asyncio/runners.py:run"], "transport"),
        (["nats/aio/client.py:_send_publish", "streams/journal/journal.py:_run"], "journal"),
        (["nats/aio/client.py:_send_publish", "streams/reading/acks.py:flush"], "ack"),
        (["streams/nats/protocol.py:parse_block", "nats/aio/client.py:_read_loop"], "pull"),
        (["actors/subscriptions.py:match", "streams/routing/router.py:_route"], "routing"),
        (["actors/runtime/actor.py:wake", "streams/reading/inbox.py:_on_message"], "machine"),
        (["asyncio/runners.py:run"], "event loop"),
    ],
)  # fmt: skip
def test_the_innermost_function_that_has_a_part_decides(stack: list[str], part: str) -> None:
    assert part_of(stack) == part


def test_work_before_the_event_loop_does_not_count() -> None:
    samples = Samples()
    samples.add(sys._getframe())
    assert samples.counts == [{}, {}, {}]


def test_samples_survive_their_file() -> None:
    samples = Samples(
        {"machine": 3, "pull": 1}, {"actors/runtime/actor.py:wake": 4}, {"actors/runtime/actor.py:wake": 4}
    )
    again = Samples(*samples.counts)
    assert again.shares() == {"machine": 0.75, "pull": 0.25}
    assert again.text().splitlines()[:3] == ["by part", "  75.0%  machine", "  25.0%  pull"]
