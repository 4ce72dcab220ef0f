"""Posts a ping to a receiver, paused or not."""

import msgspec
from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.receivers.control_requests.ask import ATTEMPT_TIMEOUT_S, ask


class Pong(Struct, frozen=True, kw_only=True):
    """The receiver's answer, or the error; `answer` is the node's whole answer."""

    status: int | None = None
    error: str | None = None
    latency_ms: float
    answer: dict[str, object]

    @property
    def taken(self) -> bool:
        """True if the receiver answered 2xx."""
        return self.error is None and self.status is not None and 200 <= self.status < 300


@operation
async def ping(access: Access, receiver: str) -> Pong:
    """Post a ping, which takes a token of the receiver's rate."""
    answer = await ask(access, "ping", receiver, timeout_s=ATTEMPT_TIMEOUT_S)
    return msgspec.convert(answer | {"answer": answer}, Pong)
