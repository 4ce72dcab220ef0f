"""Secrets are stored in the bucket of configurations only: no record, answer or log contains them."""

import asyncio
import re
from collections.abc import AsyncIterator

import msgspec

from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from tests.support.fleet.fleet import Fleet
from tests.support.fleet.sink import Reply
from tests.support.processes.commands import Terminal
from tests.support.secrecy import CREDENTIAL, SECRET, secrets_in

names = Names()
RECEIVER = "t.talkative"
SHY = "t.shy"
ORIGINAL = "ada-7"
"""The part of a body that is not for the receiver."""
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


async def test_the_original_of_a_shaped_body_stays_where_events_are_stored(
    fleet: Fleet, terminal: Terminal
) -> None:
    """Ledger, `tail` and telemetry know no more than the journal. The receiver repeats all that it got."""
    fleet.sink.manners[SHY] = lambda _: Reply(status=422, body=fleet.sink.latest[SHY].body)
    transform = {"drop": ["/user/email"], "pseudonymize": ["/user/id"]}
    retry = {"rejected_attempts": 2, "base_s": 0.05}
    await fleet.configure([SHY], retry=retry, transform=transform, pseudonym_key="psk_" + "b2xk" * 8)
    node = await fleet.start_ready()
    headers = {"Angarium-Region": "eu"}
    await fleet.js.publish(
        names.publish_to(SHY), b'{"user": {"id": "ada-7", "email": "ada-7"}, "n": 1.0}', headers
    )
    await fleet.js.publish(names.publish_to(SHY), b"ada-7, which is not JSON")
    arrivals = fleet.sink.arrivals[SHY]

    async def letters(count: int) -> bool:
        return len(await fleet.read(names.dead_letters, names.dead(SHY))) == count

    await fleet.until_true(lambda: letters(2), "both events are dead letters")
    assert [each.sequence for each in arrivals] == [1, 1]
    first = fleet.sink.latest[SHY].body
    assert re.fullmatch(rb'\{"user":\{"id":"ps_[A-Za-z0-9_-]{27}"\},"n":1.0\}', first)

    shown = [msgspec.json.encode(await fleet.ask("inspect", SHY)).decode()]
    shown += [terminal.done("dead", "list", SHY, "--wide"), terminal.done("dead", "list", SHY, "--json")]
    for letter in ("1", "2"):
        shown += [terminal.done("dead", "show", letter), terminal.done("dead", "show", letter, "--json")]
    assert first.decode() in shown[3]
    assert "the body is not shown: it is not JSON" in shown[5]
    assert not [each for each in shown if ORIGINAL in each]

    await asyncio.to_thread(terminal.done, "dead", "redrive", "1")
    await fleet.until(lambda: len(arrivals) == 4, "the letter was sent again, and tried twice")
    assert fleet.sink.latest[SHY].body == first
    await fleet.until_true(lambda: letters(2), "it is a dead letter again")
    await node.stop()
    for stream in (names.journal, names.actors, names.nodes, names.receivers):
        async for message in everything(fleet, stream):
            assert ORIGINAL not in f"{message.headers} {message.data!r}", message.subject


async def everything(fleet: Fleet, stream: str) -> AsyncIterator[StoredMessage]:
    """All that a stream holds; there is something."""
    info = await fleet.js.stream_info(stream)
    assert info is not None
    assert info.messages
    for sequence in range(info.first, info.last + 1):
        message = await fleet.js.message(stream, sequence)
        if message is not None:
            yield message
