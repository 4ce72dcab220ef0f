"""Letters of events that were evicted before they were routed: each can be sent again, like all others."""

from streams.buckets.stored_configurations import StoredConfigurations
from streams.clock import SystemTime
from streams.dead_letters.evicted import bury_unrouted
from streams.dead_letters.letters import DeadLetters
from streams.erasing import search
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import DEAD_SEQUENCE, EVENT_AGAIN, EVENT_ID, EVENT_SOURCE, EVENT_TYPE
from streams.reading.messages import stored_event
from streams.resending.redrive import Redrive
from streams.resending.redrive_lock import RedriveLock
from streams.routing.fanout import copy_headers, published_event
from tests.contract.support.routers import announce
from tests.support.installation import shard

RECEIVER = "acme.billing"


async def test_a_letter_without_a_number_is_sent_to_its_receiver_again(js: JetStream, names: Names) -> None:
    for body in (b"0", b"1"):
        await announce(js, names, body, "order.created", headers={EVENT_ID: f"id{body.decode()}"})
    for position in (2, 2):  # The same again, after a takeover.
        message = await js.message(names.events, position)
        assert message is not None
        event = published_event(
            position, message.stored_at, "acme.order.created", message.headers, message.data
        )
        assert not await bury_unrouted(js, names, RECEIVER, message, copy_headers(event, 7))
    [letter] = await DeadLetters(js, names).letters([1])
    assert (letter.reason, letter.sequence, letter.event_id, letter.type, letter.body) == (
        "evicted", None, "id1", "order.created", b"1",
    )  # fmt: skip
    assert DEAD_SEQUENCE not in letter.headers
    for source_max, found in ((7, [letter.mark]), (6, [])):
        assert await search.dead_letters(js, names, "acme", "id1", source_max) == found
    await StoredConfigurations(js, names).put(RECEIVER, b'{"url": "https://x.example/"}')
    lock = RedriveLock(js, names, "run", SystemTime())
    await lock.acquire()
    redrive = Redrive(js, names, lock)
    await redrive.begin()
    await redrive.send([letter])
    await redrive.end()
    assert redrive.done.redriven == 1
    [copy] = (await js.read(names.deliveries, names.delivery(shard(RECEIVER), RECEIVER), 1)).messages
    named = {name: copy.headers.get(name) for name in (EVENT_ID, EVENT_TYPE, EVENT_AGAIN, EVENT_SOURCE)}
    assert named == {
        EVENT_ID: "id1", EVENT_TYPE: "order.created", EVENT_AGAIN: "dead-e2", EVENT_SOURCE: None,
    }  # fmt: skip
    assert not stored_event(copy).malformed
    assert await DeadLetters(js, names).letters([1]) == []
