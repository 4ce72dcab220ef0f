"""`angarium top` on a terminal goes on while NATS is away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from angarium import access
from angarium.cli.live.top import _watch
from angarium.operations.failures import NotDone
from angarium.operations.receiver_list import top
from angarium.settings import Settings

AWAY = NotDone(kind="unavailable", text="not connected to NATS")
SCREEN = top.TopScreen(
    at="2026-01-31T12:00:00.000Z", count=0, waiting=0, behind=0, in_per_s=0.0, out_per_s=0.0, age_s=0.0,
    receivers=[], notes=[],
)  # fmt: skip


async def test_an_outage_is_said_once_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[top.TopScreen | NotDone] = [AWAY, AWAY, SCREEN, AWAY]

    class Screens:
        def __init__(self, *_: Any) -> None: ...

        async def refresh(self) -> top.TopScreen | NotDone:
            if not found:
                raise asyncio.CancelledError
            return found.pop(0)

    @asynccontextmanager
    async def nothing(*_: Any, **__: Any) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(access, "open_jetstream", nothing)
    monkeypatch.setattr(top, "Top", Screens)
    await _watch(Settings(), None, 0.0, 10, wide=True, as_json=False)
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert [line.startswith("note: NATS is away since ") for line in lines] == [True, True]
    assert "0 waiting for 0 of 0 receivers" in shown.out
