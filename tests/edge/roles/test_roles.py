"""The users of `deploy/nats/permissions.conf`: what each may do, and what it is refused, replies included.

A real node runs under these permissions, so that they are enough, and answers, so that it could be abused.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from nats.errors import NoRespondersError

from angarium.access import Access, open_jetstream
from angarium.operations.events.search import NEVER_PUBLISHED, EventSearch, search_event
from angarium.settings import Settings
from tests.edge.roles.conftest import stop
from tests.support.fleet.sink import Reply, Sink
from tests.support.plain_http import plain_client
from tests.support.processes.commands import PATIENCE_S, Terminal, line_with
from tests.support.processes.nats_cli import NatsCli, needs_nats_cli
from tests.support.processes.roles import Server, User
from tests.support.waiting import COMMAND_LOOK_S, until_true

README = (Path(__file__).parents[3] / "deploy/README.md").read_text()
RECEIVER = "acme.billing"
ECHO = "whose number is 4111-1111"

STREAMS = (
    "ANGARIUM_EVENTS", "ANGARIUM_DELIVERIES", "ANGARIUM_JOURNAL", "ANGARIUM_DEAD", "KV_angarium_receivers",
    "KV_angarium_actors",
)  # fmt: skip

FORGED = {
    "angarium.events.acme.forged": ("ANGARIUM_EVENTS", "angarium.events.*.acme.forged"),
    "angarium.deliver.acme.forged": ("ANGARIUM_DELIVERIES", "angarium.deliver.*.acme.forged"),
    "angarium.journal.99": ("ANGARIUM_JOURNAL", "angarium.journal.99"),
    "angarium.later.0.1.1.1.1.acme.x.1": ("ANGARIUM_LATER", "angarium.later.*.*.*.*.*.acme.x.1"),
    "angarium.dead.acme.forged": ("ANGARIUM_DEAD", "angarium.dead.acme.forged"),
    "$KV.angarium_receivers.acme.forged": ("KV_angarium_receivers", "$KV.angarium_receivers.acme.forged"),
    "$KV.angarium_actors.0.acme.forged": ("KV_angarium_actors", "$KV.angarium_actors.0.acme.forged"),
    "$KV.angarium_nodes.forged": ("KV_angarium_nodes", "$KV.angarium_nodes.forged"),
    "$KV.angarium_tokens.forged": ("KV_angarium_tokens", "$KV.angarium_tokens.forged"),
}
"""A subject of each kind that is stored and that no one uses: the stream and the subject of its storage."""

STEERING = ("$JS.API.STREAM.PURGE.ANGARIUM_DELIVERIES", "$JS.API.STREAM.DELETE.ANGARIUM_JOURNAL")
HIDDEN = (
    "$JS.API.STREAM.MSG.GET.ANGARIUM_JOURNAL", "$JS.API.DIRECT.GET.ANGARIUM_JOURNAL",
    "$JS.API.STREAM.MSG.GET.KV_angarium_receivers", "$JS.API.STREAM.MSG.GET.ANGARIUM_DELIVERIES",
    "$JS.API.STREAM.MSG.GET.ANGARIUM_EVENTS", "$JS.API.STREAM.MSG.GET.ANGARIUM_DEAD",
    "$JS.API.DIRECT.GET.KV_angarium_receivers", "$JS.API.DIRECT.GET.ANGARIUM_DELIVERIES",
    "$JS.API.DIRECT.GET.ANGARIUM_DEAD", "$JS.API.DIRECT.GET.KV_angarium_tokens",
    "$JS.API.STREAM.MSG.GET.KV_angarium_tokens", "$JS.API.STREAM.MSG.GET.ANGARIUM_LATER",
    "$JS.API.CONSUMER.CREATE.KV_angarium_receivers.spy", "$JS.API.STREAM.SNAPSHOT.KV_angarium_receivers",
)  # fmt: skip
"""Ways to what only operators and nodes may read."""
VERBS = ("inspect", "ping", "pause", "resume", "skip", "forget", "erase")
NODE_REQUESTS = ("angarium.ctl.drain._nodes.one", "angarium.ctl.resume._nodes.one")


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    """A receiver that repeats in its answers what it was sent."""
    async with Sink() as sink:
        sink.manners[RECEIVER] = lambda _: Reply(status=200, body=ECHO.encode())
        yield sink


# ---- what they are for


async def test_each_user_can_do_its_work_and_an_inspector_sees_no_body(
    server: Server, sink: Sink, tmp_path: Path
) -> None:
    operator = Terminal(tmp_path, server.url("operator"))
    inspector = Terminal(tmp_path, server.url("inspector"))
    await asyncio.to_thread(operator.done, "receiver", "put", RECEIVER, "--url", sink.url(RECEIVER))
    async with server.user("acme") as acme:
        stored = json.loads(await acme.ask(f"angarium.deliver.{RECEIVER}", b"{}"))
        assert stored["stream"] == "ANGARIUM_DELIVERIES"
        stored = json.loads(await acme.ask("angarium.events.acme.order", b"{}"))
        assert stored["stream"] == "ANGARIUM_EVENTS"

    async def delivered() -> bool:
        shown = await asyncio.to_thread(operator.json, "inspect", RECEIVER)
        return bool(shown["counters"]["delivered"] == 2)

    await until_true(delivered, COMMAND_LOOK_S)
    for arguments in (("receiver", "pause"), ("receiver", "ping"), ("receiver", "resume")):
        await asyncio.to_thread(operator.done, *arguments, RECEIVER)
    assert ECHO in await asyncio.to_thread(operator.done, "inspect", RECEIVER)
    seen = await asyncio.to_thread(inspector.done, "inspect", RECEIVER)
    assert "delivered 2" in seen
    assert "last_response         200" in seen
    assert ECHO not in seen
    ledger = Terminal(tmp_path, server.url("ledger"))
    followed = await asyncio.to_thread(ledger.done, "tail", RECEIVER, "--since", "1h", "--count", "2")
    assert [line.split("\t")[1:3] for line in followed.splitlines()] == [[RECEIVER, "1"], [RECEIVER, "2"]]
    replay = ("replay", RECEIVER, "--since", "1h")

    async def replayable() -> bool:
        return bool((await asyncio.to_thread(operator.json, *replay, "--dry-run"))["events"] == 2)

    await until_true(replayable, COMMAND_LOOK_S)
    assert "sent 2 events again" in await asyncio.to_thread(operator.done, *replay)


@pytest.mark.parametrize("name", ["inspector", "operator"])
async def test_the_live_nodes_are_seen_from_outside(server: Server, name: str) -> None:
    async with server.user(name) as user:
        for verb, kind in (("PING", "ping"), ("INFO", "info"), ("STATS", "stats")):
            for tail in ("", ".angarium"):
                (answer,) = await user.ask_all(f"$SRV.{verb}{tail}", 1)
                assert json.loads(answer)["type"] == f"io.nats.micro.v1.{kind}_response"


async def test_an_inspector_hears_all_nodes_and_not_only_the_first(server: Server) -> None:
    async with server.user("inspector") as inspector, server.user("node") as other:

        async def answer(request: Any) -> None:
            await asyncio.sleep(0.2)  # An export for one answer is closed after the first.
            await other.client.publish(request.reply, b"other")

        await other.client.subscribe("$SRV.PING", cb=answer)
        await other.client.flush()

        async def both_answer() -> bool:
            """Core NATS promises no answer, so it is asked again."""
            answers = await inspector.ask_all("$SRV.PING", 2, timeout_s=2.0)
            return b"other" in answers and len(answers) == 2

        await until_true(both_answer)


@needs_nats_cli
@pytest.mark.parametrize("name", ["inspector", "operator"])
async def test_the_nats_cli_lists_the_nodes(server: Server, name: str, tmp_path: Path) -> None:
    cli = NatsCli(server.url(name), tmp_path)
    assert "angarium" in await cli("micro", "ls")
    assert "ANGARIUM_JOURNAL" in await cli("stream", "info", "ANGARIUM_JOURNAL")


async def test_an_inspector_sees_what_happened(server: Server) -> None:
    async with server.user("inspector") as inspector:
        shown = json.loads(await inspector.ask("angarium.ctl.status.acme.nobody"))
        assert shown["error"]["code"] == "unknown_receiver"
        for stream in STREAMS:
            assert b'"state"' in await inspector.ask(f"$JS.API.STREAM.INFO.{stream}")
        owner = {"last_by_subj": "$KV.angarium_actors.0._owner"}
        assert b'"message"' in await inspector.ask("$JS.API.STREAM.MSG.GET.KV_angarium_actors", owner)


def test_an_inspector_sees_the_fleet_without_what_waits(server: Server, tmp_path: Path) -> None:
    inspector = Terminal(tmp_path, server.url("inspector"))
    (node,) = inspector.json("fleet")["nodes"]
    asked = inspector.run("fleet", "--shards", "--json")
    shards = json.loads(asked.stdout)
    assert [(each["node"], each["waiting"]) for each in shards] == [(node["node"], None)] * len(shards)
    assert "does not permit this user to read what waits" in inspector.run("fleet", "--shards").stderr


def test_doctor_names_the_checks_that_an_inspector_may_not_make(server: Server, tmp_path: Path) -> None:
    findings = Terminal(tmp_path, server.url("inspector")).json("doctor")
    assert all(each["ok"] for each in findings)
    unchecked = {each["subject"]: each["text"] for each in findings if "not checked" in each["text"]}
    assert list(unchecked) == ["tenants", "events", "receivers", "filters", "secrets"]
    assert "does not offer $JS.API.DIRECT.GET.KV_angarium_receivers to the account" in unchecked["receivers"]
    journal = next(each["text"] for each in findings if "ANGARIUM_JOURNAL" in each["text"])
    assert journal.endswith("this user may not see what needs it")
    assert any(each["subject"] == "shards" and "live nodes own all" in each["text"] for each in findings)


@pytest.mark.parametrize(
    ("command", "more", "hidden"),
    [
        ("receiver list", "", "DIRECT.GET.KV_angarium_receivers"),
        ("receiver get", RECEIVER, "STREAM.MSG.GET.KV_angarium_receivers"),
        ("top", "--once", "DIRECT.GET.KV_angarium_receivers"),
        ("dead list", "", "STREAM.MSG.GET.ANGARIUM_DEAD"),
        ("later list", "", "STREAM.MSG.GET.ANGARIUM_LATER"),
        ("replay", f"{RECEIVER} --since 1h --dry-run", "STREAM.MSG.GET.KV_angarium_receivers"),
        ("tail", "", "STREAM.MSG.GET.ANGARIUM_JOURNAL"),
        ("token list", "", "DIRECT.GET.KV_angarium_tokens"),
        ("job list", "", "CONSUMER.CREATE.KV_angarium_actors"),
        ("node", "", "DIRECT.GET.KV_angarium_receivers"),
        ("api", "--port 0", "DIRECT.GET.KV_angarium_tokens"),
        ("ledger", "--to sqlite:///ledger.db", "DIRECT.GET.ANGARIUM_JOURNAL"),
    ],
)
def test_a_command_that_an_inspector_may_not_use_ends_and_says_why(
    server: Server, tmp_path: Path, command: str, more: str, hidden: str
) -> None:
    refusal = Terminal(tmp_path, server.url("inspector")).failed(*f"{command} {more}".split())
    assert f"does not offer $JS.API.{hidden}" in refusal
    assert "to the account of this user: use another user, such as an operator" in refusal
    assert f"`{command}`" in README.partition("An operator is needed for")[2].partition("\n\n")[0]


@pytest.mark.parametrize("user", ["inspector", "ledger"])
def test_a_redrive_that_is_not_permitted_ends_at_once(server: Server, tmp_path: Path, user: str) -> None:
    refusal = Terminal(tmp_path, server.url(user)).failed("dead", "redrive", "--all")
    assert "does not permit this user to publish to $KV.angarium_actors._redrive: use another user" in refusal


async def test_a_ledger_follows_everything_that_happens_and_nothing_is_refused_to_it(
    server: Server, tmp_path: Path
) -> None:
    kept = f"sqlite:///{tmp_path}/ledger.db"
    operator = Terminal(tmp_path, server.url("operator"))
    await asyncio.to_thread(operator.done, "receiver", "put", "acme.kept", "--url", "https://192.0.2.1/")
    await asyncio.to_thread(operator.done, "publish", "acme.kept", "{}")
    with Terminal(tmp_path, server.url("ledger")).start("ledger", "--to", kept) as ledger:

        async def known() -> bool:
            asked = await asyncio.to_thread(operator.run, "history", "acme.kept", "--ledger", kept)
            return "configuration put" in asked.stdout and "taken up by a node" in asked.stdout

        await until_true(known, COMMAND_LOOK_S)
        stop(ledger)


async def test_an_operator_sees_the_fleet_and_may_drain_a_node(server: Server, tmp_path: Path) -> None:
    """The only node is not drained, which it says itself."""
    operator = Terminal(tmp_path, server.url("operator"))
    (node,) = (await asyncio.to_thread(operator.json, "fleet"))["nodes"]
    shards = await asyncio.to_thread(operator.json, "fleet", "--shards")
    assert node["shards_owned"] == len(shards)
    refused = await asyncio.to_thread(operator.failed, "fleet", "drain", node["node"])
    assert "no other live node would take the shards" in refused
    await asyncio.to_thread(operator.done, "fleet", "resume", node["node"])


# ---- what they try in vain


async def test_an_inspector_changes_nothing_and_sees_no_body(server: Server) -> None:
    async with server.user("inspector") as inspector:
        steering = (*(f"angarium.ctl.{verb}.{RECEIVER}" for verb in VERBS), *NODE_REQUESTS)
        for subject in (*FORGED, *steering, "_INBOX.x", "any"):
            assert await inspector.is_refused(subject), subject
        for operation in (*STEERING, *HIDDEN):
            with pytest.raises(NoRespondersError):
                await inspector.ask(operation, {"seq": 1})
        for subject in ("angarium.>", "$KV.>", "$JS.>", "_R_.>", ">"):
            assert await inspector.may_not_hear(subject), subject
    await untouched(server)


async def test_a_ledger_changes_nothing(server: Server) -> None:
    async with server.user("ledger") as ledger:
        steering = (*(f"angarium.ctl.{verb}.{RECEIVER}" for verb in VERBS), *NODE_REQUESTS)
        for subject in (*FORGED, *steering, "_INBOX.x", "any"):
            assert await ledger.is_refused(subject), subject
        for operation in (*STEERING, "$JS.API.STREAM.MSG.GET.ANGARIUM_DELIVERIES"):
            with pytest.raises(NoRespondersError):
                await ledger.ask(operation, {"seq": 1})
        for subject in ("angarium.>", "$KV.>", "$JS.>", "_R_.>", ">"):
            assert await ledger.may_not_hear(subject), subject
    await untouched(server)


async def test_a_producer_publishes_for_its_tenant_and_for_no_other(server: Server) -> None:
    others = (
        "angarium.deliver.other.billing",
        "angarium.events.other.order",
        f"angarium.deliver.1.{RECEIVER}",
    )
    own = ("angarium.deliver.acme.forged", "angarium.events.acme.forged")
    async with server.user("acme") as acme:
        for subject in (
            *(forged for forged in FORGED if forged not in own), *others, *STEERING, *HIDDEN,
            *(f"angarium.ctl.{verb}.{RECEIVER}" for verb in (*VERBS, "status")), *NODE_REQUESTS, "$SRV.PING",
            "$JS.API.INFO", "_INBOX.x",
        ):  # fmt: skip
            assert await acme.is_refused(subject), subject
        for subject in ("angarium.>", "$KV.>", "$JS.>", "$SRV.>", "_R_.>", ">"):
            assert await acme.may_not_hear(subject), subject
    await untouched(server)


async def test_a_producer_that_may_not_look_publishes_without_a_note(server: Server, tmp_path: Path) -> None:
    producer = Terminal(tmp_path, server.url("acme"))
    for target in ("acme", "acme.unlisted"):
        done = await asyncio.to_thread(producer.run, "publish", target, "{}", "--type", "order.created")
        assert (done.returncode, done.stderr) == (0, ""), target


async def test_a_node_changes_no_stream_and_hears_no_event(server: Server) -> None:
    async with server.user("node") as node:
        for subject in (
            "$JS.API.STREAM.DELETE.ANGARIUM_DELIVERIES", "$JS.API.STREAM.CREATE.OTHER",
            "$JS.API.STREAM.UPDATE.ANGARIUM_DELIVERIES", "$JS.API.STREAM.PURGE.ANGARIUM_DEAD",
            "$JS.API.STREAM.MSG.DELETE.KV_angarium_receivers", "any",
            f"angarium.ctl.inspect.{RECEIVER}", *NODE_REQUESTS,
        ):  # fmt: skip
            assert await node.is_refused(subject), subject
        for subject in ("angarium.deliver.>", "angarium.events.>", ">"):
            assert await node.may_not_hear(subject), subject


async def test_an_operator_has_an_event_erased_and_a_node_erases_it(
    server: Server, sink: Sink, tmp_path: Path
) -> None:
    operator = Terminal(tmp_path, server.url("operator"))
    put = ("receiver", "put", "acme.erased", "--url", sink.url("acme.erased"), "--paused")
    await asyncio.to_thread(operator.done, *put)
    async with server.user("acme") as acme:
        for subject in ("angarium.deliver.acme.erased", "angarium.events.acme.order"):
            await acme.client.publish(subject, b"{}", headers={"Angarium-Id": "erased-1"})
        await acme.client.flush()
    erase = ("erase", "--yes", "--event", "erased-1", "--tenant", "acme")
    done = await asyncio.to_thread(operator.json, *erase)
    assert (done["done"], done["events"]) == (True, 1)
    assert done["discarded"] >= 1  # Others of the tenant may have it waiting, too.
    async with server.user("acme") as acme, server.user("inspector") as inspector:
        for user in (acme, inspector):
            assert await user.is_refused("$KV.angarium_actors._erased.acme/erased-2")
            assert await user.is_refused("angarium.ctl.erase.acme.erased")


async def test_the_api_publishes_and_steers_and_owns_nothing(server: Server, tmp_path: Path) -> None:
    operator = Terminal(tmp_path, server.url("operator"))
    scopes = [each for scope in ("publish", "read", "manage", "operate") for each in ("--scope", scope)]
    token = (await asyncio.to_thread(operator.done, "token", "create", "*", *scopes)).strip()
    with Terminal(tmp_path, server.url("api")).start("api", "--port", "0") as api:
        url = (await asyncio.to_thread(line_with, api.stdout, "serving on ")).split()[-1]
        async with plain_client(base_url=url, headers={"authorization": f"Bearer {token}"}) as client:
            tenant = "/v1/tenants/acme"
            kept = f"{tenant}/receivers/put-by-api"
            for method, path, status in (
                ("PUT", kept, 201), ("PATCH", kept, 200), ("GET", kept, 200),
                ("GET", f"{tenant}/receivers", 200), ("GET", f"{tenant}/receivers?health=true", 200),
                ("DELETE", f"{tenant}/events/order-17", 202),
                ("GET", f"{tenant}/events/order-17/erasure", 200),
                ("POST", f"{tenant}/events/order.created", 202), ("POST", f"{kept}/events", 202),
                ("POST", f"{tenant}/receivers/nobody/events", 404),
                ("GET", f"{tenant}/later", 200), ("DELETE", f"{tenant}/later/order-17", 404),
                ("GET", f"{tenant}/dead-letters", 200), ("GET", f"{tenant}/dead-letters/999999", 404),
                ("DELETE", kept, 200), ("GET", "/v1/nodes", 200), ("PUT", f"{tenant}/receivers/nobody", 201),
                ("GET", "/v1/shards", 200), ("GET", "/v1/tokens", 200), ("GET", "/v1/alerts", 200),
            ):  # fmt: skip
                answer = await client.request(method, path, json={"url": "https://192.0.2.1/"})
                assert answer.status_code == status, f"{method} {path}: {answer.text}"
            await tailed(client, tenant)
            made = await client.post("/v1/tokens", json={"tenant": "acme", "scopes": ["read"]})
            assert (await client.delete(f"/v1/tokens/{made.json()['id']}")).status_code == 204

            async def buried() -> bool:
                return bool((await client.get(f"{tenant}/dead-letters")).json()["letters"])

            await until_true(buried)
            sent = await client.post(f"{tenant}/dead-letters/redrive", json={"all": True})
            assert sent.json()["redriven"] >= 1, sent.text
            await worked_off(client, tenant)
        api.terminate()
        assert api.wait(PATIENCE_S) == 0

    as_api = Settings(nats=(server.url("api"),))
    async with open_jetstream(as_api) as js:
        found = await search_event(Access(js, as_api), "never-published", "acme")
        assert isinstance(found, EventSearch), found
        assert found.why_none == NEVER_PUBLISHED

    async def noted() -> bool:
        (listed,) = await asyncio.to_thread(operator.json, "token", "list")
        return listed["used_at"] is not None

    await until_true(noted, COMMAND_LOOK_S)
    async with server.user("api") as user:
        for subject in (
            "$KV.angarium_nodes.forged", "$KV.angarium_actors.0.acme.forged", "angarium.journal.0",
            "$KV.angarium_actors.0._owner", *STEERING, "$JS.API.STREAM.MSG.GET.ANGARIUM_EVENTS",
            "$JS.API.STREAM.MSG.DELETE.ANGARIUM_EVENTS", *NODE_REQUESTS,
        ):  # fmt: skip
            assert await user.is_refused(subject), subject


async def worked_off(client: httpx.AsyncClient, tenant: str) -> None:
    """A replay is begun and ends; there is nothing to send, as nothing is settled yet."""
    kept = f"{tenant}/receivers/replayed"
    await client.put(kept, json={"url": "https://192.0.2.1/"})
    begun = await client.post(f"{kept}/replay", json={"since": "2026-01-01T00:00:00Z"})
    assert begun.status_code == 202, begun.text

    async def ended() -> bool:
        return bool((await client.get(begun.headers["location"])).json()["state"] == "done")

    await until_true(ended)
    assert (await client.delete(begun.headers["location"])).status_code == 200
    await client.delete(kept)


async def tailed(client: httpx.AsyncClient, tenant: str) -> None:
    """An attempt is followed, from the beginning of the journal on."""
    named = f"{tenant}/receivers/tailed"
    await client.put(named, json={"url": "https://192.0.2.1/"})
    await client.post(f"{named}/events", json={})
    query, begin = {"receiver": "tailed"}, {"last-event-id": "1-0"}
    async with (
        asyncio.timeout(PATIENCE_S),
        client.stream("GET", f"{tenant}/tail", params=query, headers=begin) as answer,
    ):
        lines = answer.aiter_lines()
        while '"verdict":"failed"' not in await anext(lines):
            pass
    await client.delete(named)


async def test_an_operator_owns_nothing(server: Server) -> None:
    async with server.user("operator") as operator:
        for subject in (
            "$KV.angarium_actors.0._owner", "$KV.angarium_nodes.forged", "angarium.journal.0",
            "angarium.dead.acme.billing", "_INBOX.x",
        ):  # fmt: skip
            assert await operator.is_refused(subject), subject


@pytest.mark.parametrize(
    "asked",
    [
        "angarium.ctl.status.acme.nobody",
        "$SRV.PING",
        "$SRV.STATS.angarium",
        "$JS.API.INFO",
        "$JS.API.STREAM.INFO.ANGARIUM_JOURNAL",
    ],
)
async def test_no_answer_to_an_inspector_goes_where_it_should_not(server: Server, asked: str) -> None:
    async with server.user("inspector") as inspector:
        await ask_with_forged_replies(inspector, asked)
    await untouched(server)


@pytest.mark.parametrize("asked", ["$JS.API.DIRECT.GET.ANGARIUM_JOURNAL.angarium.journal.0", "$JS.API.INFO"])
async def test_no_answer_to_a_ledger_goes_where_it_should_not(server: Server, asked: str) -> None:
    async with server.user("ledger") as ledger:
        await ask_with_forged_replies(ledger, asked)
    await untouched(server)


@pytest.mark.parametrize("asked", ["angarium.deliver.acme.billing", "angarium.events.acme.order"])
async def test_no_acknowledgement_to_a_producer_goes_where_it_should_not(server: Server, asked: str) -> None:
    async with server.user("acme") as acme:
        await ask_with_forged_replies(acme, asked, own="acme")
    await untouched(server)


@pytest.mark.parametrize("asked", [f"angarium.ctl.inspect.{RECEIVER}", "$SRV.PING", "$SRV.STATS.angarium"])
async def test_a_node_answers_only_inboxes_of_any_user(server: Server, asked: str) -> None:
    """The operator is in the node's own account, where nothing but the node itself holds this."""
    async with server.user("operator") as operator:
        await ask_with_forged_replies(operator, asked)
    await untouched(server)


async def ask_with_forged_replies(user: User, asked: str, own: str = "") -> None:
    """Ask for answers to go to all that is stored and all that steers; return when they would have gone."""
    for reply in (*FORGED, *STEERING):
        if not own or f".{own}." not in reply:
            await user.client.publish(asked, b"", reply=reply)
    await user.ask(asked)


async def untouched(server: Server) -> None:
    """Checks that nothing was forged, and that every stream holds what it held."""
    async with server.user("operator") as operator:
        for subject, (stream, stored) in FORGED.items():
            asked = f"$JS.API.STREAM.MSG.GET.{stream}"
            answer = json.loads(await operator.ask(asked, {"last_by_subj": stored}))
            assert "message" not in answer, subject
        for stream in STREAMS:
            assert b'"state"' in await operator.ask(f"$JS.API.STREAM.INFO.{stream}"), stream
        deliveries = json.loads(await operator.ask("$JS.API.STREAM.INFO.ANGARIUM_DELIVERIES"))["state"]
        assert deliveries["first_seq"] == 1
