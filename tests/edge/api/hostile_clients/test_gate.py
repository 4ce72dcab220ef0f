"""The gate: which tokens are valid, what a process does that cannot know, and the record of a token's use."""

import hmac
from datetime import UTC, datetime, timedelta

import pytest

from angarium.api import api_state
from angarium.api.admission import token_uses
from angarium.api.problems import HIDDEN
from angarium.operations.tokens import secret
from streams.buckets.api_tokens import Token
from streams.nats.connection import NatsWire
from tests.edge.api.conftest import Api, problem
from tests.support.plain_http import plain_client
from tests.support.waiting import until_true

EVENTS = "/v1/tenants/acme/events/order.created"


@pytest.mark.parametrize("sent", ["Basic {}", "{}", "Bearer", "Bearer {}x", "Bearer {} {}", "bearer\t{}"])
async def test_a_token_comes_as_a_bearer_token_alone(api: Api, sent: str) -> None:
    token = (await api.token()).text
    async with plain_client(base_url=api.url) as client:
        answer = await client.post(EVENTS, headers={"authorization": sent.replace("{}", token)})
        problem(answer, 401, "unauthorized")
        assert (await client.post(EVENTS, headers={"authorization": f"bearer  {token}"})).status_code == 202


async def test_the_id_of_a_token_alone_opens_nothing(api: Api) -> None:
    made = await api.token()
    async with api.client_with(f"ang_{made.id}_{'x' * 43}") as client:
        problem(await client.post(EVENTS), 401, "unauthorized")


@pytest.mark.parametrize("tenant", ["acme.eu", "*", ">", "%3E", "_acme", "a%20b", "%C3%A4", "x" * 65])
async def test_an_invalid_name_leads_to_no_tenant(api: Api, tenant: str) -> None:
    """A token for all tenants would publish for acme by the name of another one: `acme.eu` and `x`."""
    async with await api.client("*", ["publish", "read", "manage"]) as client:
        for method, path in (("POST", "events/x"), ("GET", "receivers"), ("PUT", "receivers/billing")):
            answer = await client.request(method, f"/v1/tenants/{tenant}/{path}", json={})
            assert problem(answer, 404, "not-found") == HIDDEN, (method, path)
    assert await api.stored(api.names.events) == []


async def test_a_process_that_does_not_hear_of_revocations_refuses_all(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await api.client() as client:
        assert (await client.get("/readyz")).status_code == 200
        monkeypatch.setattr(api_state, "STALE_AFTER_S", 0.0)
        for answer in (await client.post(EVENTS), await client.get("/readyz")):
            problem(answer, 503, "unavailable")
            assert answer.headers["retry-after"] == "1"
        assert (await client.get("/healthz")).status_code == 200


async def test_a_process_without_nats_refuses_all(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await api.client() as client:
        monkeypatch.setattr(NatsWire, "is_connected", False)
        for answer in (await client.post(EVENTS), await client.get("/readyz")):
            assert "NATS cannot be reached" in problem(answer, 503, "unavailable")


async def test_the_use_of_a_token_is_recorded_at_a_limited_rate(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    note = api.state.tokens.note_use

    async def noting(token: str) -> object:
        noted.append(token)
        return await note(token)

    monkeypatch.setattr(api.state.tokens, "note_use", noting)
    first, second = await api.token(), await api.token()
    before = datetime.now(UTC) - timedelta(seconds=5)
    async with api.client_with(first.text) as client, api.client_with(second.text) as other:
        for _ in range(3):
            assert (await client.post(EVENTS)).status_code == 202

        async def recorded() -> bool:
            return first.id in await api.state.tokens.last_uses()

        await until_true(recorded)
        assert (
            before < (await api.state.tokens.last_uses())[first.id] < datetime.now(UTC) + timedelta(seconds=5)
        )
        monkeypatch.setattr(token_uses, "USES_RECORDED_AT_ONCE_MAX", 0)
        assert (await other.post(EVENTS)).status_code == 202, "who cannot be noted may still publish"
    assert noted == [first.id]


def test_a_secret_is_compared_in_constant_time_even_where_there_is_no_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[str, str]] = []
    compare = hmac.compare_digest

    def comparing(one: str, other: str) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", comparing)
    given = secret.new_secret()
    token = Token(tenant="acme", scopes=("read",), hash=given.hash, created_at=datetime.now(UTC))
    assert secret.proves(given, token)
    assert not secret.proves(secret.new_secret(), token)
    assert not secret.proves(given, None)
    assert [len(one) == len(other) for one, other in compared] == [True] * 3
