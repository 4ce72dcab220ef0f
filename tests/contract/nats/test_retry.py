"""Retries: a new connection ends each pause, and a lost one is not reported for every request."""

import asyncio
import logging

import pytest

from actors.errors import Unavailable
from streams.nats import jetstream, retry
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import JetStream
from streams.nats.retry import Pauses, ReasonLog, retry_until_answered
from tests.sim.server.client import ClientWire
from tests.sim.server.sessions import Frame
from tests.support.waiting import until

log = logging.getLogger("streams.test")


class Away(ClientWire):
    """A connection without a server, which is lost and made again as the test says."""

    is_connected = True

    def __init__(self) -> None:
        super().__init__("test", max_payload=1 << 20)
        self.js = JetStream(self)

    def transmit(self, frame: Frame) -> None:
        """There is no server."""

    async def close(self) -> None:
        self.closed = True

    def lose(self) -> None:
        self.is_connected = False
        self.tell(False)

    def come_back(self) -> None:
        self.is_connected = True
        self.tell(True)


@pytest.fixture
async def away() -> Away:
    return Away()


async def test_a_new_connection_ends_a_pause_and_the_next_one_is_short(
    away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PAUSE_MIN_S", 1000.0)
    monkeypatch.setattr(retry, "PAUSE_MAX_S", 4000.0)
    away.lose()
    pauses = Pauses(away.js)
    pausing = asyncio.ensure_future(pauses.wait())
    await asyncio.sleep(0)
    assert not pausing.done()
    away.come_back()
    await until(pausing.done)
    assert pauses.next_s == 1000.0


async def test_pauses_grow_without_a_new_connection(away: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSE_MIN_S", 0.001)
    monkeypatch.setattr(retry, "PAUSE_MAX_S", 0.004)
    for pauses in (Pauses(), Pauses(away.js)):
        lengths = []
        for _ in range(4):
            lengths.append(pauses.next_s)
            await pauses.wait()
        assert lengths == [0.001, 0.002, 0.004, 0.004]


async def test_a_wait_is_logged_once_for_each_reason_and_again_after_a_recovery(
    away: Away, caplog: pytest.LogCaptureFixture
) -> None:
    reason_log = ReasonLog(away.js, log, "thing.waiting", shard=3)
    for why in ("full", "full", "gone"):
        reason_log.log_once(why)
    reason_log.clear()
    reason_log.log_once("gone")
    assert _told(caplog) == [("thing.waiting", why) for why in ("full", "gone", "gone")]


async def test_a_failure_while_nats_is_away_is_logged_only_if_it_lasts(
    away: Away, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason_log = ReasonLog(away.js, log, "thing.waiting")
    away.lose()
    reason_log.log_once("no answer")
    away.come_back()
    reason_log.log_once("no answer")
    assert _told(caplog) == []
    monkeypatch.setattr(jetstream, "DISTURBED_FOR_S", 0.0)
    away.lose()
    away.come_back()
    reason_log.log_once("no answer")
    assert _told(caplog) == [("thing.waiting", "no answer")]


async def test_a_final_refusal_ends_the_asking_and_any_other_is_waited_for() -> None:
    failures = [Unavailable("no leader"), NotPermitted("no permission")]

    async def ask() -> str:
        if failures:
            raise failures.pop(0)
        return "answered"

    assert await retry_until_answered(ask) == "answered"
    failures.append(NotPermitted("no permission", final=True))
    with pytest.raises(NotPermitted):
        await retry_until_answered(ask)


def _told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    records = [each for each in caplog.records if each.levelno >= logging.INFO]
    return [(each.message, each.__dict__["why"]) for each in records]
