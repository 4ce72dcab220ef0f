"""The receiver's side of a handshake, for `angarium listen` and the demo: proof, or consent to any sender."""

import json
import re
import secrets
from collections.abc import Sequence

from actors.configuration.signing_secrets import SecretKey, secret_key
from angarium.delivery.handshake import proof
from angarium.http_server import Received, Reply

NONCE_BYTES = 16
# The proof is signed with the key of events. No time or number of an event begins with a letter, and there is
# no dot behind which the asker could put a body: so no proof is the signature of an event.
_CHALLENGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{31,255}\Z")


def handshake_reply(received: Received, texts: Sequence[str]) -> Reply | None:
    """The answer of a receiver with these secrets, which uses the first HMAC key; None: no handshake."""
    headers = received.headers
    challenge, origin = headers.get("angarium-challenge", ""), headers.get("webhook-request-origin")
    if received.method == "OPTIONS" and origin is not None:
        consent = (("allow", "POST"), ("webhook-allowed-origin", origin), ("webhook-allowed-rate", "*"))
        return Reply(headers=consent)
    keys = [found for each in texts if isinstance(found := secret_key(each), SecretKey)]
    key = next((each.key for each in keys if each.kind != "ed25519"), None)
    if received.method != "GET" or not _CHALLENGE.match(challenge) or key is None:
        return None
    nonce = secrets.token_urlsafe(NONCE_BYTES)
    body = json.dumps({"nonce": nonce, "hmac": proof(key, challenge, nonce)}).encode()
    return Reply(headers=(("content-type", "application/json"),), body=body)
