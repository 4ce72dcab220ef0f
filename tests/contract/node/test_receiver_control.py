"""Answers of a shard's owner about one receiver, also about an unknown one."""

import asyncio

import msgspec
import pytest

from actors.machine import commands as c
from actors.machine.pace.pace import Observation
from angarium.node.app import joined_node
from angarium.node.control_requests import ReceiverControl
from angarium.node.metrics.node_metrics import NodeMetrics
from angarium.node.node import Node
from streams.buckets.change_trail import changed_by
from streams.clock import SystemTime
from streams.control_requests.requests import ControlRequest, Denied, Granted
from streams.fleet.members import FactKinds, Member
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.contract.node.senders import AnswersAll, NobodySends
from tests.support.installation import SHARDS, node_settings, publish
from tests.support.waiting import until, until_true

UNKNOWN_NAMES = 10_000
AT_ONCE = 200
RECEIVER = "acme.billing"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def ask(handler: ReceiverControl, verb: str, receiver: str) -> Granted | Denied:
    return await handler.handle(ControlRequest(verb, receiver, b""))


def remembered(node: Node, asked: list[str]) -> int:
    """Counts the receivers that the node holds anything about, of those that it was asked about."""
    hosts = [shard.host for shard in node.owned.values()]
    actors = sum(len(host.actors) + len(host.unsaved.receivers) for host in hosts)
    return actors + sum(map(node.context.configurations.has_record, asked))


async def test_requests_about_unknown_names_leave_no_trace(wire: Wire, js: JetStream, names: Names) -> None:
    """Otherwise any client that may ask could fill a node's memory and the bucket of the snapshots."""
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        handler = ReceiverControl(node)
        metrics = {each.name: str(each.samples) for each in NodeMetrics(node).collect()}
        verbs = ("inspect", "status", "ping", "skip", "forget", "inspect", "status", "pause", "resume")
        asked = [(verbs[number % len(verbs)], f"acme.n{number}") for number in range(UNKNOWN_NAMES)]
        for start in range(0, UNKNOWN_NAMES, AT_ONCE):
            some = asked[start : start + AT_ONCE]
            for (_, receiver), answer in zip(
                some, await asyncio.gather(*(ask(handler, *each) for each in some)), strict=True
            ):
                assert isinstance(answer, Denied)
                assert answer.code == "unknown_receiver"
                assert answer.message.startswith(f"there is no receiver {receiver}: ")
        assert remembered(node, [receiver for _, receiver in asked]) == 0
        for name in ("angarium_actors", "angarium_receivers_held", "angarium_journal_facts"):
            after = {each.name: str(each.samples) for each in NodeMetrics(node).collect()}
            assert after[name] == metrics[name]
    actors = await js.subjects(names.actors, f"{names.actor_keys.actor(0, '').partition('.0.')[0]}.>")
    assert not [subject for subject in actors if ".acme." in subject]


async def test_a_receiver_that_was_put_a_moment_ago_is_known_at_once(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """The node need not have noticed the configuration yet."""
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example"}')
        assert isinstance(await ask(ReceiverControl(node), "inspect", RECEIVER), Granted)


@pytest.mark.parametrize("verb", ["ping", "verify"])
async def test_a_ping_or_verify_uses_the_configuration_that_was_put_a_moment_ago(
    wire: Wire, js: JetStream, names: Names, verb: str
) -> None:
    """Otherwise a person who puts another URL and asks at once learns whether the old one answers."""
    members: dict[str, object] = {"secrets": [SECRET], "handshake": "hmac" if verb == "verify" else "none"}

    async def put(url: str) -> None:
        await js.publish(names.receiver(RECEIVER), msgspec.json.encode({"url": url} | members))

    await put("https://old.example")
    sender = AnswersAll()
    async with joined_node(wire, node_settings(names), SystemTime(), sender) as node:
        await until(lambda: len(node.owned) == SHARDS)
        handler = ReceiverControl(node)
        assert isinstance(await ask(handler, "inspect", RECEIVER), Granted)
        await node.context.configurations.stop()  # The node hears of changes late.
        await put("https://new.example")
        assert isinstance(await ask(handler, verb, RECEIVER), Granted)
        await js.publish(names.receiver(RECEIVER), b"", {"KV-Operation": "DEL"})
        removed = await ask(handler, verb, RECEIVER)
        assert isinstance(removed, Denied)
        assert removed.code == "unknown_receiver"
    assert sender.urls == ["https://new.example"]


async def test_an_eraser_learns_that_no_receiver_has_the_event(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """Until then the receiver could be put, and the event delivered under a number that another one gets."""
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        handler, codes = ReceiverControl(node), list[str]()
        position = await publish(js, names, RECEIVER, b"{}", {"Angarium-Id": "e1"})
        body = msgspec.json.encode({"event": "e1", "positions": [position]})

        async def told() -> bool:
            answer = await handler.handle(ControlRequest("erase", RECEIVER, body))
            assert isinstance(answer, Denied)
            codes.append(answer.code)
            return answer.code == "unknown_receiver"

        await until_true(told)
        assert set(codes) == {"unavailable", "unknown_receiver"}
        assert len(await js.subjects(names.dead_letters, names.dead(RECEIVER))) == 1


async def test_an_unknown_verb_is_reported_first(wire: Wire, js: JetStream, names: Names) -> None:
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        answer = await ask(ReceiverControl(node), "dance", "acme.nobody")
        assert isinstance(answer, Denied)
        assert answer.code == "unknown_verb"


async def test_a_head_that_only_the_stream_has_is_shown_with_its_type(
    wire: Wire, js: JetStream, names: Names
) -> None:
    await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example", "paused": true}')
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        for number in (1, 2):
            headers = {"Angarium-Type": f"order.{number}", "Angarium-Id": f"e{number}"}
            await publish(js, names, RECEIVER, b"{}", headers)
        host = node.host_of(RECEIVER)
        assert host is not None
        await until(lambda: RECEIVER in host.actors and host.actors[RECEIVER].state.parked)
        assert not host.actors[RECEIVER].pending.mailbox
        answer = await ask(ReceiverControl(node), "status", RECEIVER)
        assert isinstance(answer, Granted)
        head = answer.members["head"]
        assert (head["sequence"], head["event_id"], head["type"]) == (1, "e1", "order.1")
        assert answer.members["backlog"] == 2
        assert (answer.members["why"], answer.members["remedy"]) == ("paused", "resume")


async def test_a_pause_is_recorded_with_its_author(wire: Wire, js: JetStream, names: Names) -> None:
    await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example"}')
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        handler = ReceiverControl(node)
        body = b'{"by": "ada@desk"}'
        assert isinstance(await handler.handle(ControlRequest("pause", RECEIVER, body)), Granted)
        stored = await js.last_message(names.receivers, names.receiver(RECEIVER))
        assert stored is not None
        assert changed_by(stored) == "ada@desk"
        assert isinstance(await handler.handle(ControlRequest("resume", RECEIVER, body)), Granted)
        shard = node.shard_of(RECEIVER)
        last = await js.last_message(names.journal, names.journal_of(shard))
        assert last is not None
        assert b'"by":"ada@desk"' in last.data
        refused = await handler.handle(ControlRequest("pause", RECEIVER, b"now"))
        assert isinstance(refused, Denied)
        assert refused.code == "invalid"


async def test_a_resume_says_which_learnt_pace_is_forgotten(wire: Wire, js: JetStream, names: Names) -> None:
    await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example"}')
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        handler, host = ReceiverControl(node), node.host_of(RECEIVER)
        assert isinstance(await ask(handler, "inspect", RECEIVER), Granted)
        assert host is not None
        refused = Observation(throttled=1, answers=10, started_per_s=10.0, refused_began_at=host.clock.now())
        host.actors[RECEIVER].live.record(c.LearnPace((refused,)), host.clock.now())
        answer = await ask(handler, "resume", RECEIVER)
        assert isinstance(answer, Granted)
        assert answer.members["forgotten_pace"]["effective_limit"] == pytest.approx(5.0, abs=0.5)
        assert await ask(handler, "resume", RECEIVER) == Granted({"paused": False, "forgotten_pace": None})


async def test_a_skip_and_a_forget_are_recorded_with_their_author(
    wire: Wire, js: JetStream, names: Names
) -> None:
    await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example", "paused": true}')
    await publish(js, names, RECEIVER)
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        handler = ReceiverControl(node)
        for verb in ("skip", "forget"):

            async def is_done(verb: str = verb) -> bool:
                request = ControlRequest(verb, RECEIVER, b'{"by": "ada@desk"}')
                return isinstance(await handler.handle(request), Granted)

            await until_true(is_done)  # There is nothing to skip until the event has come.
        journal = await js.read(names.journal, names.journal_of(node.shard_of(RECEIVER)), 1, 1000)
        for mark in (b'"skipped"', b'"forgot"'):
            (recorded,) = (each.data for each in journal.messages if mark in each.data)
            assert b'"by":"ada@desk"' in recorded


async def test_a_node_knows_of_an_older_one_that_no_newer_fact_may_be_recorded(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """The older one could not read the facts about it if it took over."""
    async with joined_node(wire, node_settings(names), SystemTime(), NobodySends()) as node:
        await until(lambda: len(node.owned) == SHARDS)
        hosts = [each.host for each in node.owned.values()]
        assert all(each.all_know_handshakes() and each.all_know_transforms() for each in hosts)
        assert all(each.all_know_paces() and each.all_know_offline_pings() for each in hosts)
        older = Member(
            node="older", started_at=0.0, version="0", heartbeat=1, ttl_s=60.0, facts=FactKinds.ALERTS
        )
        await js.publish(names.node("older"), msgspec.json.encode(older))
        await until(lambda: "older" in node.context.members.live)
        assert node.owned
        assert not any(each.all_know_handshakes() or each.all_know_transforms() for each in hosts)
        assert not any(each.all_know_paces() or each.all_know_offline_pings() for each in hosts)
