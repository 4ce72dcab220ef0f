"""Receives webhooks of Angarium: verifies them, handles each event once, limits the rate.

Everything is a plain function or a small class without dependencies, and works with any framework:

- `verify`: is this request genuine?
- `MemoryNumbers`, `SqliteNumbers`: was this event handled before, is one missing?
- `FixedWindow`, `SlidingWindow`, `TokenBucket`, `LeakyBucket`: does it come too fast?
- `answer_challenge`, `consent`: the handshake.
- `MemoryQueue`, `SqliteQueue`: answer first, work later.

Read `receiver` first: `Receiver` puts them together. `angarium_receiver.asgi` and `angarium_receiver.wsgi`
are middleware made of it.
"""

from angarium_receiver.handled_numbers import Arrival, InProgress, MemoryNumbers, Numbers, SqliteNumbers
from angarium_receiver.handshake import answer_challenge, consent
from angarium_receiver.keys import InvalidKey, Key, parse_key
from angarium_receiver.limiters import FixedWindow, LeakyBucket, Limiter, SlidingWindow, TokenBucket, Verdict
from angarium_receiver.queues import MemoryQueue, Queue, SqliteQueue
from angarium_receiver.receiver import Answer, Receiver
from angarium_receiver.verification import Delivery, VerificationError, verify

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Arrival",
    "Delivery",
    "FixedWindow",
    "InProgress",
    "InvalidKey",
    "Key",
    "LeakyBucket",
    "Limiter",
    "MemoryNumbers",
    "MemoryQueue",
    "Numbers",
    "Queue",
    "Receiver",
    "SlidingWindow",
    "SqliteNumbers",
    "SqliteQueue",
    "TokenBucket",
    "Verdict",
    "VerificationError",
    "answer_challenge",
    "consent",
    "parse_key",
    "verify",
]
