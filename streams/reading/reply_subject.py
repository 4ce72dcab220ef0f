"""Reply subjects of delivered messages, and the ack that is published to them.

The server writes all it knows about a delivery into the subject for the ack, in 9 tokens, or in 11 or 12 if
the account has a JetStream domain or is imported (ADR-15):

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<nanoseconds>.<pending>
    $JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>. ...
"""

from msgspec import Struct

ACK = b"+ACK"
"""The body of an ack, which is published to the message's reply subject and gets no answer."""


TOKENS_WITHOUT_DOMAIN = 9
"""Tokens of a reply subject without a domain; a longer one has two more in front of those read here."""


class DeliveryInfo(Struct, frozen=True, gc=False):
    """The information in a reply subject.

    - `position`: the message's place in the stream.
    - `number`: the consumer's number of the delivery.
    - `stored_at`: the server's time of the message, in seconds since the epoch.
    - `pending`: how many messages the consumer has left to hand out.
    """

    position: int
    number: int
    stored_at: float
    pending: int


def delivery_info(reply: str) -> DeliveryInfo:
    """Parse the reply subject of a delivered message. Raises `ValueError` for any other subject."""
    tokens = reply.split(".")
    if len(tokens) < TOKENS_WITHOUT_DOMAIN or tokens[0] != "$JS" or tokens[1] != "ACK":
        raise ValueError(f"not the reply subject of a delivered message: {reply!r}")
    at = 5 if len(tokens) == TOKENS_WITHOUT_DOMAIN else 7
    position, number, nanoseconds, pending = map(int, tokens[at : at + 4])
    return DeliveryInfo(position, number, nanoseconds / 1e9, pending)
