"""Timed events under the permissions of each user: a producer publishes, a node delivers."""

import asyncio
import time
from pathlib import Path

from actors.times_as_text import instant_text
from tests.support.fleet.sink import Sink
from tests.support.processes.commands import Terminal
from tests.support.processes.roles import Server
from tests.support.waiting import until


async def test_an_event_with_a_time_is_delivered_and_another_is_cancelled(
    server: Server, tmp_path: Path
) -> None:
    operator, timed = Terminal(tmp_path, server.url("operator")), "acme.timed"
    async with Sink() as sink:
        put = ("receiver", "put", timed, "--url", sink.url(timed), "--event", "timed")
        await asyncio.to_thread(operator.done, *put)
        async with server.user("acme") as acme:
            for event, in_s in (("soon", 1.0), ("later", 3600.0)):
                headers = {"Angarium-Id": event, "Angarium-Deliver-At": instant_text(time.time() + in_s)}
                await acme.client.publish("angarium.events.acme.timed", b"{}", headers=headers)
            await acme.client.flush()
        await until(lambda: [each.event_id for each in sink.arrivals[timed]] == ["soon"])
        assert "cancelled later" in await asyncio.to_thread(operator.done, "later", "cancel", "acme", "later")
