"""Has a receiver prove itself now, paused or not."""

import msgspec
from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.receivers.control_requests.ask import ATTEMPT_TIMEOUT_S, ask


class Verification(Struct, frozen=True, kw_only=True):
    """The outcome of a handshake: `verified`, or the status or error of the receiver's answer.

    `answer` is the node's whole answer.
    """

    verified: bool
    status: int | None = None
    error: str | None = None
    latency_ms: float
    answer: dict[str, object]


@operation
async def verify(access: Access, receiver: str) -> Verification:
    """Make a handshake, which takes a token of the receiver's rate; returns once its outcome is recorded."""
    answer = await ask(access, "verify", receiver, timeout_s=ATTEMPT_TIMEOUT_S)
    return msgspec.convert(answer | {"answer": answer}, Verification)
