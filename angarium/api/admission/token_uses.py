"""The record of when tokens are used: one write from time to time, however often a token is used."""

import asyncio
from typing import Any

from streams.buckets.api_tokens import TokenStore

USE_RECORDED_EVERY_S = 600.0
"""Interval at which the use of a token is recorded."""
USES_RECORDED_AT_ONCE_MAX = 64


class TokenUses:
    """The uses that one process has recorded, of the HTTP API and of the console."""

    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens
        self._recorded_at: dict[str, float] = {}
        self._recording: set[asyncio.Task[Any]] = set()

    def record(self, token: str) -> None:
        """Record from time to time that the token is used; the request does not wait for it."""
        now = asyncio.get_running_loop().time()
        if now - self._recorded_at.get(token, float("-inf")) < USE_RECORDED_EVERY_S:
            return
        if len(self._recording) >= USES_RECORDED_AT_ONCE_MAX:
            return
        self._recorded_at[token] = now
        task = asyncio.ensure_future(self._tokens.note_use(token))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)
