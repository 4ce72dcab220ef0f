"""A node is killed between a receiver's answer to its handshake and the record of it: it is made again."""

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from angarium.http_server import Received, Reply, serve
from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.trial import hang

RECEIVER = "t.proving"
KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Proving:
    """A receiver that proves itself with the standard library alone; `requests` are the methods that came."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.asked = asyncio.Event()
        self.on_challenge: Callable[[], object] = bool

    def answer(self, received: Received) -> Reply:
        self.requests.append(received.method)
        if received.method != "GET":
            return Reply()
        self.on_challenge()
        self.asked.set()
        signed = f"angarium.handshake.{received.headers['angarium-challenge']}.mine".encode()
        proof = base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
        return Reply(body=json.dumps({"nonce": "mine", "hmac": proof}).encode())

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Yields the URL."""
        server = await serve("127.0.0.1", 0, self.answer)
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        server.close()


async def test_a_handshake_is_made_again_if_the_node_dies_before_it_records_the_answer(fleet: Fleet) -> None:
    receiver = Proving()
    # The server stops when the challenge arrives, so the node can hear the answer and record nothing.
    receiver.on_challenge = lambda: hang(fleet.server)
    async with receiver.listening() as url:
        await fleet.configure([RECEIVER], url=url, handshake="hmac", secrets=[SECRET])
        first = await fleet.start_ready()
        await fleet.js.publish(names.publish_to(RECEIVER), b"{}")
        await receiver.asked.wait()
        receiver.on_challenge = bool
        await first.kill()
        # A server that only woke would read what the node had sent meanwhile.
        await fleet.server.kill()
        await fleet.server.start()
        await fleet.start_ready()
        await fleet.until(lambda: "POST" in receiver.requests, "the event came")
        inspected = await fleet.ask("inspect", RECEIVER)
    assert receiver.requests[:2] == ["GET", "GET"], "the event came before the second proof"
    assert inspected["handshake"]["verified"] is True
