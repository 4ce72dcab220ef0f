"""What a node does every now and then so that no stream fills up with what nobody needs any more.

The owner of shard 0 purges, for all. Every node sees to it that a quiet shard of its own does not hold the
journal: where the journal has gone on without a shard, that one appends an empty flush, and with it goes its
checkpoint. So the signs of life of quiet shards are paid by the traffic of the others, one for every `LAG`
messages of theirs and shard, and an installation that rests writes nothing.
"""

import asyncio
import logging
from collections.abc import Mapping

from actors.errors import AngariumError
from angarium.shard import Shard, Surroundings
from streams.errors import ApiError, Unavailable
from streams.purge import purge_journal
from streams.repeat import stream_info

EVERY_S = 60.0
LAG = 16
"""A shard may fall behind by so many messages of the journal for each shard that there is."""
log = logging.getLogger(__name__)


class Upkeep:
    """The upkeep by one node. `owned` are the shards that are its own, as they come and go."""

    def __init__(self, around: Surroundings, shards: int, owned: Mapping[int, Shard]) -> None:
        self._around = around
        self._shards = shards
        self._owned = owned

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._look_after_the_journal()
            except (Unavailable, ApiError, AngariumError) as error:
                log.warning("upkeep.failed", extra={"why": str(error)})

    async def _look_after_the_journal(self) -> None:
        js, names = self._around.js, self._around.names
        end = (await stream_info(js, names.journal)).last
        for shard in list(self._owned.values()):
            if end - shard.journal.sequence > LAG * self._shards:
                shard.journal.show_life()
        if self._keeps_the_house():
            await purge_journal(js, names, self._shards)

    def _keeps_the_house(self) -> bool:
        first = self._owned.get(0)
        return first is not None and not (first.ended.is_set() or first.suspended)
