"""A JetStream of a process that dies at a chosen request: later requests are not sent."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest

from streams.nats.wire import Wire
from tests.contract.support.jetstream_proxy import Call, JetStreamProxy
from tests.contract.support.servers import Server, opened

SOME = 7
"""Requests between two at which `make test` lets a process die; `make soak` does at each."""

WHEREVER_IT_DIES = pytest.mark.parametrize(
    ("every", "heard"),
    [
        pytest.param(SOME, False, id="unsent, some"),
        pytest.param(SOME, True, id="unheard, some"),
        pytest.param(1, False, id="unsent", marks=pytest.mark.soak),
        pytest.param(1, True, id="unheard", marks=pytest.mark.soak),
    ],
)
OVER_DEATHS = pytest.mark.parametrize("every", [SOME, pytest.param(1, marks=pytest.mark.soak)])


class Died(Exception):
    """Stands for the next step of a process that is dead."""


class CrashingJetStream(JetStreamProxy):
    """A JetStream that dies at request `at` (from 1 on): after its answer if `heard`, else before it is sent.

    `asked` counts the requests; 0 for `at` means never. `spares_letters`: it dies before it deletes any.
    """

    def __init__(self, wire: Wire, at: int, *, heard: bool) -> None:
        super().__init__(wire)
        self.asked = 0
        self._at = at
        self._heard = heard
        self.spares_letters = False

    async def around(self, method: str, call: Call, *args: Any, **_: Any) -> Any:
        if method == "last_message":  # Made of a request, which counts.
            return await call()
        if method == "request" and self.spares_letters and ".STREAM.MSG.DELETE." in args[0]:
            raise Died
        here = self._step()
        answer = await call()
        self._end(here)
        return answer

    def _step(self) -> int:
        self.asked += 1
        if self._at and self.asked >= self._at + self._heard:
            raise Died
        return self.asked

    def _end(self, here: int) -> None:
        if self._at and self.asked >= self._at and here >= self._at:
            raise Died


@asynccontextmanager
async def dying(server: Server, at: int, *, heard: bool) -> AsyncIterator[CrashingJetStream]:
    """One over a connection of its own."""
    async with opened(server, partial(CrashingJetStream, at=at, heard=heard)) as js:
        yield js


class CrashingProcess:
    """A process that dies at its request number `step`; `died` says whether it made that many."""

    def __init__(self, server: Server, step: int, *, heard: bool) -> None:
        self.step = step
        self.died = False
        self._server = server
        self._heard = heard

    @asynccontextmanager
    async def process(self) -> AsyncIterator[CrashingJetStream]:
        """The JetStream of the process, whose death ends the block."""
        async with dying(self._server, self.step, heard=self._heard) as mortal:
            try:
                yield mortal
            except Died:
                self.died = True


def crashing_processes(server: Server, *, heard: bool, every: int) -> Iterator[CrashingProcess]:
    """Processes that die later and later, `every` requests apart; the last one lives to its end."""
    for step in count(every, every):
        crashing = CrashingProcess(server, step, heard=heard)
        yield crashing
        if not crashing.died:
            return
