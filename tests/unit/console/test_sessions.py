"""Bounds of sessions: neither a token, nor a tenant with many tokens, ends the sessions of others."""

from datetime import UTC, datetime

import pytest

from angarium.console import sessions
from angarium.console.sessions import ConsoleSession, ConsoleSessions
from streams.buckets.api_tokens import Token

TOKEN = Token(tenant="acme", scopes=("read",), hash="", created_at=datetime.now(UTC))
OTHER = Token(tenant="other", scopes=("read",), hash="", created_at=datetime.now(UTC))


@pytest.fixture
def open_ones() -> ConsoleSessions:
    return ConsoleSessions(lambda token: OTHER if token.startswith("o") else TOKEN, lambda: True)


def opened(open_ones: ConsoleSessions, token: str) -> ConsoleSession:
    return open_ones.open(token, OTHER if token.startswith("o") else TOKEN)[1]


async def test_a_token_has_few_sessions(open_ones: ConsoleSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "TOKEN_SESSIONS_MAX", 2)
    first, another, second, third = (opened(open_ones, each) for each in ("a", "b", "a", "a"))
    assert [*open_ones] == [another, second, third]
    assert not open_ones.lasts(first)


async def test_a_tenant_with_many_tokens_has_few_sessions(
    open_ones: ConsoleSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "TENANT_SESSIONS_MAX", 3)
    others = opened(open_ones, "other")
    own = [opened(open_ones, f"t{number}") for number in range(5)]
    assert [*open_ones] == [others, *own[2:]]


async def test_with_too_many_in_all_the_tenant_that_has_most_loses_its_first(
    open_ones: ConsoleSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 4)
    others = [opened(open_ones, f"o{number}") for number in range(2)]
    own = [opened(open_ones, f"t{number}") for number in range(4)]
    assert [*open_ones] == [*others, *own[2:]]
    again = opened(open_ones, "o2")
    assert [*open_ones] == [others[1], *own[2:], again]
