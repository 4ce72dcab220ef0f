"""Receivers of one host that refuses connections: a node tries it in turn, and all go on when it is back."""

import asyncio
from contextlib import suppress

from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import publish
from tests.support.free_ports import free_port

RECEIVERS = [f"t{number % 3}.r{number}" for number in range(24)]
WATCHED_FOR_S = 5.0


class LateHost:
    """A server that takes everything, from `open` on."""

    def __init__(self) -> None:
        self.port = free_port()
        self.posts = 0

    async def open(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.posts += 1
        writer.close()


async def attempts(fleet: Fleet) -> int:
    """The failures that are recorded, of all receivers."""
    states = [await fleet.ask("inspect", each) for each in RECEIVERS]
    return sum(each["counters"]["failed_attempts"] for each in states)


async def test_a_host_that_refuses_is_tried_in_turn_until_it_is_back(fleet: Fleet) -> None:
    host = LateHost()
    await fleet.start_ready()
    retry = {"base_s": 0.05, "cap_s": 0.1}
    await fleet.configure(RECEIVERS, url=f"http://127.0.0.1:{host.port}/hook", retry=retry)
    for each in RECEIVERS:
        await publish(fleet.js, each, each.replace(".", ":"), b"{}")

    async def waits() -> bool:
        whys = [(await fleet.ask("inspect", each))["why"] for each in RECEIVERS]
        return sum("try it in turn" in why for why in whys) > len(RECEIVERS) // 2

    await fleet.until_true(waits, "most receivers wait for their turn")
    before = await attempts(fleet)
    await asyncio.sleep(WATCHED_FOR_S)
    assert await attempts(fleet) - before < len(RECEIVERS)
    async with await host.open():
        await fleet.until(lambda: host.posts == len(RECEIVERS), "all receivers have their event")

    async def all_idle() -> bool:
        states = [await fleet.ask("inspect", each) for each in RECEIVERS]
        return all((each["counters"]["delivered"], each["phase"]) == (1, "idle") for each in states)

    await fleet.until_true(all_idle, "each has its event, once")
