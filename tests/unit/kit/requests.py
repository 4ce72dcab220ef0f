"""Requests as Angarium makes them, signed by its own code."""

from angarium.delivery.signing import parse_secret, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = 1_800_000_000.0


def headers(
    body: bytes, numbers: str | None = "7", *secrets: str, at: float = NOW, event_id: str = "evt_1"
) -> dict[str, str]:
    """The headers of a request with this body; without `numbers` it is a ping."""
    keys = [parse_secret(each, "secrets") for each in secrets or (SECRET,)]
    found = {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(at)),
        "webhook-signature": sign(keys, event_id.encode(), int(at), body).decode(),
        "angarium-event": "angarium.ping" if numbers is None else "order.created",
        "angarium-attempt": "2",
        "content-type": "application/json",
    }
    if numbers is not None:
        content = f"{event_id}.{numbers}.".encode() + body
        signatures = b" ".join(key.sign(content) for key in keys)
        found |= {"angarium-sequence": numbers, "angarium-signature": signatures.decode()}
    return found
