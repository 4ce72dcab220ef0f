"""Runs the ledger's writer for an installation."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from angarium.access import installation, open_jetstream
from angarium.ledger.open import open_for_writing
from angarium.ledger.store import LedgerAway
from angarium.ledger.writer import LedgerTotals, Writer
from angarium.settings import Settings
from angarium.telemetry.metrics.families import NO_LABELS, labelled, single
from angarium.telemetry.metrics.serving import serving_metrics
from streams.nats.jetstream import JetStream

KEEP_DEFAULT_S = 30 * 86_400.0
"""Default time that rows are kept."""
RETRY_EVERY_S = 2.0
"""Pause between two attempts to reach a database that went away."""

log = logging.getLogger(__name__)


class LedgerMetrics(Collector):
    """The metrics of a ledger's writer; `away`: its database cannot be reached."""

    def __init__(self, js: JetStream, totals: LedgerTotals) -> None:
        self.away = False
        self._js = js
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        """All metrics, in the order of the table."""
        totals = self._totals
        at = totals.complete_at
        yield labelled(
            "angarium_ledger_lag_seconds", {} if at is None else {NO_LABELS: max(0.0, time.time() - at)}
        )
        yield single("angarium_ledger_facts_total", totals.facts)
        yield single("angarium_ledger_gaps_total", totals.gaps)
        yield single("angarium_ledger_shares", totals.shares)
        yield single("angarium_ledger_database_connected", not self.away)
        yield single("angarium_nats_connected", self._js.wire.is_connected)

    def unready(self) -> str:
        """The reason why nothing is written now; empty if it is."""
        if not self._js.wire.is_connected:
            return "NATS is not connected"
        return "the database cannot be reached" if self.away else ""


async def follow(settings: Settings, keep_s: float = KEEP_DEFAULT_S, *, second: bool = False) -> None:
    """Follow the journal until cancelled. Raises LedgerError, ConnectError, MonitorFailed and SettingsError.

    If the database goes away later, this waits until it is back; if it is not there at the start, it raises.
    """
    totals = LedgerTotals()
    async with AsyncExitStack() as stack:
        js = await stack.enter_async_context(open_jetstream(settings, second=second))
        names, was_open, metrics = installation(settings).names, False, LedgerMetrics(js, totals)
        if not second:  # A process that does more than this, such as `angarium dev`, is watched as a node.
            address, instance = settings.ledger_monitor, f"{settings.node}-ledger"
            await stack.enter_async_context(serving_metrics(address, instance, metrics, metrics.unready))
        while True:
            try:
                async with open_for_writing(settings.ledger, keep_s) as store:
                    if metrics.away:
                        log.info("ledger.back")
                    was_open, metrics.away = True, False
                    await Writer(js, names, store, keep_s=keep_s, totals=totals).run()
            except LedgerAway as error:
                if not was_open:
                    raise
                level = logging.DEBUG if metrics.away else logging.WARNING
                log.log(level, "ledger.away", extra={"why": str(error)})
                metrics.away = True
                await asyncio.sleep(RETRY_EVERY_S)
