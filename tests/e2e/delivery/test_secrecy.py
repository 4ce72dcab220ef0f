"""Secrets are stored in the bucket of configurations only: no record, answer or log contains them."""

import re
from collections.abc import AsyncIterator

from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from tests.support.fleet.fleet import Fleet
from tests.support.fleet.sink import Reply
from tests.support.secrecy import CREDENTIAL, SECRET, secrets_in

names = Names()
RECEIVER = "t.talkative"
TALKATIVE = Reply(
    status=422, headers=(("x-got", CREDENTIAL), ("set-cookie", f"session={CREDENTIAL}")),
    body=f"what is {CREDENTIAL}?".encode(),
)  # fmt: skip


async def test_credentials_that_a_receiver_repeats_are_shown_nowhere(fleet: Fleet) -> None:
    """`Fleet.ask` looks for secrets in every answer, and `Node` in every line of its log."""
    fleet.sink.manners[RECEIVER] = lambda _: TALKATIVE
    own = {"header": "x-signature", "secret": "hush-hush"}
    await fleet.configure([RECEIVER], retry={"rejected_attempts": 2, "base_s": 0.05}, signature=own)
    node = await fleet.start_ready()
    await fleet.js.publish(names.publish_to(RECEIVER), b"{}")
    await fleet.until(lambda: len(fleet.sink.arrivals[RECEIVER]) == 2, "it was tried twice")
    await fleet.ask("ping", RECEIVER)
    assert fleet.sink.latest[RECEIVER].headers["authorization"] == CREDENTIAL
    assert re.fullmatch("[0-9a-f]{64}", fleet.sink.latest[RECEIVER].headers["x-signature"])

    shown = (await fleet.ask("inspect", RECEIVER))["last_response"]
    assert shown["headers"]["x-got"] == "Bearer [redacted]"
    assert shown["body"] == "what is Bearer [redacted]?"

    async def buried() -> bool:
        return await fleet.js.last_message(names.dead_letters, names.dead(RECEIVER)) is not None

    await fleet.until_true(buried, "the event is a dead letter")
    await node.stop()
    streams = (names.deliveries, names.journal, names.actors, names.nodes, names.dead_letters)
    for stream in streams:
        async for message in everything(fleet, stream):
            assert not secrets_in(f"{message.headers} {message.data!r}"), message.subject
    kept = [message.data.decode() async for message in everything(fleet, names.receivers)]
    assert SECRET in kept[0]
    assert CREDENTIAL in kept[0]


async def everything(fleet: Fleet, stream: str) -> AsyncIterator[StoredMessage]:
    """All that a stream holds; there is something."""
    info = await fleet.js.stream_info(stream)
    assert info is not None
    assert info.messages
    for sequence in range(info.first, info.last + 1):
        message = await fleet.js.message(stream, sequence)
        if message is not None:
            yield message
