"""Runs the ledger's writer for an installation."""

import asyncio
import logging

from angarium.connecting import installation, open_jetstream
from angarium.ledger.open import open_for_writing
from angarium.ledger.store import LedgerAway
from angarium.ledger.writer import Writer
from angarium.settings import Settings

KEEP_DEFAULT_S = 30 * 86_400.0
"""Default time that rows are kept."""
RETRY_EVERY_S = 2.0
"""Pause between two attempts to reach a database that went away."""

log = logging.getLogger(__name__)


async def follow(settings: Settings, keep_s: float = KEEP_DEFAULT_S, *, second: bool = False) -> None:
    """Follow the journal until cancelled. Raises LedgerError and ConnectError.

    If the database goes away later, this waits until it is back; if it is not there at the start, it raises.
    """
    async with open_jetstream(settings, second=second) as js:
        names, was_open, is_away = installation(settings).names, False, False
        while True:
            try:
                async with open_for_writing(settings.ledger, keep_s) as store:
                    if is_away:
                        log.info("ledger.back")
                    was_open, is_away = True, False
                    await Writer(js, names, store, keep_s=keep_s).run()
            except LedgerAway as error:
                if not was_open:
                    raise
                log.log(
                    logging.DEBUG if is_away else logging.WARNING, "ledger.away", extra={"why": str(error)}
                )
                is_away = True
                await asyncio.sleep(RETRY_EVERY_S)
