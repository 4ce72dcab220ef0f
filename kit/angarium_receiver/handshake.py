"""The receiver's side of the handshake, which Angarium asks for before the first event, and after a change.

- `hmac`: `GET` with `angarium-challenge`. The answer proves that the program at this URL has the secret.
- `cloudevents`: `OPTIONS` with `webhook-request-origin` (CloudEvents, HTTP 1.1 Web Hooks, 4). The answer
  consents to get events.
"""

from __future__ import annotations

import json
import re
import secrets

from angarium_receiver.keys import HmacKey

# A proof is signed with the key of events. No time of an event begins with a letter, not even for a verifier
# that reads numbers with leading zeros, and there is no dot behind which the asker could put a body: so no
# proof is the signature of an event.
_CHALLENGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{31,255}\Z")
_ORIGIN = re.compile(r"[\x21-\x7e]{1,256}\Z")


def answer_challenge(challenge: str, key: HmacKey, nonce: str | None = None) -> bytes:
    """The body of the answer to an `angarium-challenge`, in JSON. Raises ValueError if it is none.

    `nonce`: random by default, so that the receiver signs nothing that others have chosen.
    """
    if not _CHALLENGE.match(challenge):
        raise ValueError("not a challenge")
    own = nonce or secrets.token_urlsafe(24)
    return json.dumps({"nonce": own, "hmac": key.prove(challenge, own)}).encode()


def consent(origin: str, per_minute: int | None = None) -> dict[str, str]:
    """The headers that allow this origin to send, at most `per_minute` requests. Raises ValueError."""
    if not _ORIGIN.match(origin):
        raise ValueError("not an origin")
    rate = "*" if per_minute is None else str(per_minute)
    return {"allow": "POST", "webhook-allowed-origin": origin, "webhook-allowed-rate": rate}
