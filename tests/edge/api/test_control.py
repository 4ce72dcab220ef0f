"""Control requests over HTTP to the owner of a receiver: with a real node, and without any."""

from collections.abc import AsyncIterator
from contextlib import ExitStack

import httpx
import pytest
from msgspec.structs import replace

from angarium.delivery.signing import public_key
from angarium.node.app import open_node
from streams.buckets.change_trail import changed_by
from tests.edge.api.conftest import SECRET, SHARDS, URL, Api, problem
from tests.support.fleet.sink import Reply, Sink
from tests.support.waiting import until, until_true

LIST = "/v1/tenants/acme/receivers"
BILLING = f"{LIST}/billing"
VERBS = ("pause", "resume", "ping", "skip", "forget", "verify")


@pytest.fixture
async def owned(api: Api) -> AsyncIterator[Api]:
    """With a node that owns all shards and may post to this machine."""
    settings = replace(
        api.to.settings,
        node="a",
        ttl_s=2.0,
        allow_http=True,
        allow_networks=("127.0.0.0/8",),
        origin="events.example.com",
    )
    async with open_node(settings) as node:
        await until(lambda: len(node.owned) == SHARDS)
        yield api


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with Sink() as sink:
        yield sink


async def everything(api: Api, tenant: str = "acme") -> httpx.AsyncClient:
    return await api.client(tenant, ["publish", "read", "manage"])


async def test_an_operator_pauses_looks_skips_forgets_and_resumes(owned: Api, sink: Sink) -> None:
    await owned.receiver("acme.billing", url=sink.url("acme.billing"))
    async with await everything(owned) as client:
        assert (await client.post(f"{BILLING}/pause")).json() == {"paused": True}
        assert (await owned.in_bucket())["paused"] is True
        stored = await owned.js.last_message(owned.names.receivers, owned.names.receiver("acme.billing"))
        assert stored is not None
        assert changed_by(stored).startswith("token ")
        for number in range(3):
            body, known = {"order": number}, {"angarium-id": f"order-{number}"}
            assert (await client.post(f"{BILLING}/events", json=body, headers=known)).status_code == 202

        async def waiting() -> bool:
            state = (await client.get(f"{BILLING}/state")).json()
            return bool((state["phase"], state["backlog"]) == ("paused", 3))

        await until_true(waiting)
        state = (await client.get(f"{BILLING}/state")).json()
        assert (state["why"], state["remedy"]) == ("paused", f"POST {BILLING}/resume")
        skipped = await client.post(f"{BILLING}/skip")
        assert (skipped.status_code, skipped.json()) == (200, {"sequence": 1, "event_id": "order-0"})
        pinged = (await client.post(f"{BILLING}/ping")).json()
        assert (pinged["status"], pinged["error"]) == (200, None)
        forgotten = await client.post(f"{BILLING}/forget")
        assert forgotten.json() == {"discarded": 2, "next_sequence": 4}
        assert "nothing waiting" in problem(await client.post(f"{BILLING}/skip"), 409, "refused")
        assert (await client.post(f"{BILLING}/resume")).json() == {"paused": False, "forgotten_pace": None}
        state = (await client.get(f"{BILLING}/state")).json()
        assert (state["phase"], state["remedy"]) == ("idle", None)


async def test_a_ping_that_fails_is_an_answer(owned: Api, sink: Sink) -> None:
    await owned.receiver("acme.billing", url=sink.url("acme.billing"))
    sink.manners["acme.billing"] = lambda _: Reply(status=500)
    async with await everything(owned) as client:
        pinged = await client.post(f"{BILLING}/ping")
    assert (pinged.status_code, pinged.json()["status"]) == (200, 500)


async def test_a_receiver_gets_no_ping_before_it_proves_itself(owned: Api, sink: Sink) -> None:
    """The receiver consents to the `origin` of the settings, and to no other one."""
    await owned.receiver("acme.billing", url=sink.url("acme.billing"), handshake="cloudevents")
    consent = (("webhook-allowed-origin", "events.example.com"), ("webhook-allowed-rate", "120"))
    sink.proofs["acme.billing"] = lambda number: Reply(headers=consent if number > 1 else ())
    async with await everything(owned) as client:
        failed = (await client.post(f"{BILLING}/verify")).json()
        assert (failed["verified"], failed["status"]) == (False, 200)
        assert failed["error"] == "unproven: the answer has no webhook-allowed-origin"
        assert "has not proved itself" in problem(await client.post(f"{BILLING}/ping"), 409, "refused")
        unproven = (await client.get(f"{BILLING}/state")).json()
        assert (unproven["phase"], unproven["handshake"]["failures"]) == ("unverified", 1)
        assert "the handshake failed once, the last: unproven" in unproven["why"]
        answers: list[httpx.Response] = []

        async def allowed() -> bool:
            answers.append(await client.post(f"{BILLING}/verify"))
            return answers[-1].status_code == 200

        await until_true(allowed)
        verified = answers[-1].json()
        assert (verified["verified"], verified["status"], verified["error"]) == (True, 200, None)
        proven = (await client.get(f"{BILLING}/state")).json()
    assert (proven["phase"], proven["handshake"]["verified"]) == ("idle", True)
    assert proven["handshake"]["allowed_per_minute"] == 120
    assert proven["bucket"] | {"tokens": 0} == {
        "tokens": 0, "limit": 120, "per": "minute", "burst": 1, "effective_limit": 120,
    }  # fmt: skip


async def test_a_receiver_without_a_handshake_has_nothing_to_prove(owned: Api, sink: Sink) -> None:
    await owned.receiver("acme.billing", url=sink.url("acme.billing"))
    async with await everything(owned) as client:
        why = problem(await client.post(f"{BILLING}/verify"), 409, "refused")
    assert why.startswith("acme.billing is configured without a handshake")


async def test_a_receiver_that_is_not_there_has_no_state(owned: Api) -> None:
    async with await everything(owned) as client:
        for answer in (
            await client.get(f"{BILLING}/state"),
            *[await client.post(f"{BILLING}/{verb}") for verb in VERBS],
        ):
            assert problem(answer, 404, "not-found") == "there is no receiver acme.billing"


async def test_a_removal_is_recorded_before_the_answer(owned: Api) -> None:
    await owned.receiver("acme.billing", paused=True)
    async with await everything(owned) as client:
        for number in range(2):
            assert (await client.post(f"{BILLING}/events", json=number)).status_code == 202
        gone = await client.delete(BILLING)
    assert gone.json() == {"receiver": "acme.billing", "discarded": 2, "certain": True, "recorded": True}


async def test_without_an_owner_a_request_is_answered_503_with_retry_after(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await everything(api) as client:
        for answer in (
            await client.get(f"{BILLING}/state"),
            *[await client.post(f"{BILLING}/{verb}") for verb in VERBS],
        ):
            assert "no node answered" in problem(answer, 503, "unavailable")
            assert answer.headers["retry-after"] == "1"
        for name in ("_x", "a%2Eb", "%00", "x" * 65):
            problem(await client.get(f"{LIST}/{name}/state"), 422, "invalid")
            problem(await client.post(f"{LIST}/{name}/ping"), 422, "invalid")


async def test_only_a_limited_number_of_orders_is_awaited(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await everything(api) as client:
        with ExitStack() as taken:
            for _ in range(16):
                taken.enter_context(api.state.control_limits.admit("acme"))
            busy = [await client.post(f"{BILLING}/ping"), await client.get(f"{BILLING}/state")]
        free = await client.post(f"{BILLING}/ping")
    for each in busy:
        assert "too many requests" in problem(each, 503, "unavailable")
    assert "no node answered" in problem(free, 503, "unavailable")


async def test_the_public_key_of_an_ed25519_secret_is_shown_and_the_secret_only_once(api: Api) -> None:
    await api.receiver("acme.billing", url=URL, secrets=[SECRET])
    async with await everything(api) as client:
        made = await client.post(f"{BILLING}/rotate-secret", json={"secret_kind": "ed25519"})
        shown = await client.get(BILLING)
        again = await client.put(BILLING, json=shown.json())
        refused = await client.post(f"{BILLING}/rotate-secret", json={"secret_kind": "rsa"})
    secret, [key] = made.json()["secret"], made.json()["public_keys"]
    assert public_key(secret) == key
    assert shown.json()["secrets"] == [key]
    assert secret not in shown.text + again.text
    assert again.json()["public_keys"] == [key]
    assert (await api.in_bucket())["secrets"] == [secret]
    assert "ed25519, hmac-sha256 or hmac-sha512" in problem(refused, 422, "invalid")


async def test_a_secret_is_rotated_and_the_old_one_signs_for_a_while(api: Api) -> None:
    await api.receiver("acme.billing", url=URL, secrets=[SECRET])
    async with await everything(api) as client:
        first = await client.post(f"{BILLING}/rotate-secret", json={"overlap_s": 3600})
        stored = await api.in_bucket()
        late = await client.post(f"{BILLING}/rotate-secret", headers={"if-match": '"1"'})
        at_once = await client.post(f"{BILLING}/rotate-secret", json={"overlap_s": 0})
        for body in ({"overlap_s": -1}, {"overlap_s": 1e9}, {"overlap_s": "1h"}):
            refused = await client.post(f"{BILLING}/rotate-secret", json=body)
            problem(refused, 422, "invalid")
            assert [each["pointer"] for each in refused.json()["errors"]] == ["/overlap_s"]
        problem(await client.post(f"{BILLING}/rotate-secret", json={"overlap": 1}), 422, "invalid")
        problem(await client.post(f"{LIST}/nobody/rotate-secret"), 404, "not-found")
    assert first.status_code == 200
    assert first.headers["cache-control"] == "no-store"
    assert stored["secrets"] == [first.json()["secret"]]
    assert [each["secret"] for each in stored["old_secrets"]] == [SECRET]
    problem(late, 412, "precondition-failed")
    assert at_once.json()["until"] is None
    assert await api.in_bucket() == {"url": URL, "secrets": [at_once.json()["secret"]]}


async def test_another_tenants_token_steers_nothing(api: Api) -> None:
    await api.receiver("acme.billing")
    async with await everything(api, "other") as stranger, await api.client("acme", ["read"]) as reader:
        problem(await stranger.get(f"{BILLING}/state"), 404, "not-found")
        for client in (stranger, reader):
            for verb in (*VERBS, "rotate-secret"):
                problem(await client.post(f"{BILLING}/{verb}"), 404, "not-found")
    assert await api.in_bucket() == {"url": "https://example.com/"}
