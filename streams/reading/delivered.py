"""Delivered messages: what their reply subjects tell, and the answers that they take.

The server writes all it knows of a delivery into the subject that an ack goes to, in 9 tokens, or in 11
or 12 where the account has a JetStream domain or is imported (ADR-15):

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<nanoseconds>.<pending>
    $JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>. ...
"""

from msgspec import Struct

ACK = b"+ACK"
"""The body of an ack, which is published to the message's reply subject and has no answer."""


class Delivered(Struct, frozen=True, gc=False):
    """`stored_at` is the server's time of the message, seconds since the epoch.

    `deliveries` restarts at 1 on a reset of the consumer, so it counts nobody's attempts.
    """

    sequence: int
    consumer_sequence: int
    deliveries: int
    stored_at: float
    pending: int


def delivered(reply: str) -> Delivered:
    """Read the reply subject of a delivered message. Raises `ValueError` where it is none."""
    tokens = reply.split(".")
    if len(tokens) < 9 or tokens[0] != "$JS" or tokens[1] != "ACK":
        raise ValueError(f"not the reply subject of a delivered message: {reply!r}")
    at = 4 if len(tokens) == 9 else 6
    deliveries, sequence, consumer_sequence, nanoseconds, pending = map(int, tokens[at : at + 5])
    return Delivered(sequence, consumer_sequence, deliveries, nanoseconds / 1e9, pending)


def consumer_sequence(reply: str) -> int:
    """Only the consumer's number of the delivery, since the pull loop asks for it with every message."""
    tokens = reply.split(".")
    return int(tokens[6 if len(tokens) == 9 else 8])
