"""Pull requests as they arrive, and the statuses that answer them."""

from typing import Any

from msgspec import Struct

from tests.sim.server.streams.store import Headers

SECOND = 1_000_000_000


class Pull(Struct):
    """One request for `left` more messages. Instants are by `Timing.now`."""

    reply: str
    left: int
    bytes_left: int
    expires_at: float | None
    heartbeat_s: float
    heartbeat_at: float | None
    no_wait: bool
    delivered: int = 0

    def ended(self, code: int, description: str) -> Headers:
        """The status that tells its end."""
        left = {"Nats-Pending-Messages": str(self.left), "Nats-Pending-Bytes": str(self.bytes_left)}
        return status(code, description) | left


class BadPull(Exception):
    """A request is malformed; the message is the server's."""


def status(code: int, description: str = "") -> Headers:
    """An inline status as a client sees it."""
    return {"Status": str(code)} | ({"Description": description} if description else {})


def parse_pull(reply: str, body: dict[str, Any] | int, now: float) -> Pull:
    """Read the body of a request, which is JSON or a number of messages. Raises `BadPull`."""
    if isinstance(body, int):
        return Pull(reply, body, 0, None, 0.0, None, False)
    expires, heartbeat = body.get("expires", 0), body.get("idle_heartbeat", 0)
    if heartbeat * 2 > expires:
        raise BadPull("heartbeat value too large")
    return Pull(
        reply,
        left=body.get("batch", 0),
        bytes_left=body.get("max_bytes", 0),
        expires_at=now + expires / SECOND if expires else None,
        heartbeat_s=heartbeat / SECOND,
        heartbeat_at=now + heartbeat / SECOND if heartbeat else None,
        no_wait=body.get("no_wait", False),
    )
