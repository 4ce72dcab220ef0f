"""The request of a handshake, and whether its answer is the proof that the receiver's configuration asks for.

- `hmac`: `GET` with an unpredictable challenge. The answer is JSON with a nonce of the receiver,
  and the HMAC-SHA256 of both by one of its secrets. The text in front of them is in front of no event, so the
  signature of an event is no answer; the receiver's nonce keeps it from signing what others choose.
- `cloudevents`: `OPTIONS`, as section 4 of "HTTP 1.1 Web Hooks for Event Delivery" has it. The receiver
  consents by naming our origin, or any (`*`). A status alone is no consent.
"""

import base64
import binascii
import hmac
import secrets
from collections.abc import Collection
from hashlib import sha256
from typing import assert_never

import msgspec
from msgspec import Struct

from actors.configuration.policy import Policy
from actors.configuration.signing_secrets import SecretKey, secret_key
from actors.machine.handshake.deciding import ALLOWED_RATE, allowed_rates, is_allowed_rate
from actors.machine.outcome import DISABLE, Answered, Failed

UNPROVEN = "unproven"
"""The `error` of a handshake that was answered, but not with the proof."""
USUAL_ORIGIN = "angarium"
"""The name of the sender for the `cloudevents` handshake, unless the settings name another one."""
CHALLENGE_BYTES = 32
CHALLENGE_START = "c"
"""A letter: receivers sign nothing that could be read as a number."""
ANSWER_MAX = 4096
"""Bytes of an answer; a proof has some two hundred."""
NONCE_LENGTH_MAX = 256
SIGNED = b"angarium.handshake.%b.%b"
"""The bytes that the receiver signs: the challenge, and its own nonce."""


class HandshakeAnswer(Struct):
    """The answer to a challenge: the receiver's nonce, and the HMAC in base64."""

    nonce: str
    hmac: str


class Question(Struct, frozen=True):
    """The request of a handshake: its method, the headers that only it has, and its challenge, if any.

    `origin`: the name of the sender to which a receiver consents.
    """

    method: str
    lines: tuple[bytes, ...]
    challenge: str = ""
    origin: str = USUAL_ORIGIN


_answer = msgspec.json.Decoder(HandshakeAnswer)


def question(policy: Policy, origin: str = USUAL_ORIGIN) -> Question:
    """The request that the configuration asks for, with a new challenge."""
    match policy.handshake:
        case "hmac":
            challenge = CHALLENGE_START + secrets.token_urlsafe(CHALLENGE_BYTES)
            return Question("GET", (b"angarium-challenge: " + challenge.encode(),), challenge)
        case "cloudevents":
            per_minute = policy.rate.per_minute if policy.rate else 0
            lines = (b"webhook-request-rate: %d" % per_minute,) if per_minute else ()
            return Question("OPTIONS", lines, origin=origin)
        case "none":
            raise ValueError("the configuration asks for no handshake")
        case _:
            assert_never(policy.handshake)


def origin_lines(policy: Policy, origin: str) -> tuple[bytes, ...]:
    """The header of each request, POSTs included, that names the origin to which the receiver consents."""
    return (b"webhook-request-origin: " + origin.encode(),) if policy.handshake == "cloudevents" else ()


def check_proof(outcome: Answered | Failed, asked: Question, policy: Policy, now: float) -> Answered | Failed:
    """The outcome if it is the proof, or no success anyway; else a failure that says what is wrong.

    An answer that disables the receiver is no success, with the proof or without it.
    """
    if isinstance(outcome, Failed) or not 200 <= outcome.status < 300 or outcome.says(DISABLE):
        return outcome
    why = (
        _consent_problem(outcome, asked.origin)
        if policy.handshake == "cloudevents"
        else hmac_problem(outcome.body, asked.challenge, keys_of(policy, now))
    )
    if not why:
        return outcome
    return Failed(error=UNPROVEN, detail=why, latency_ms=outcome.latency_ms, status=outcome.status)


def keys_of(policy: Policy, now: float) -> list[bytes]:
    """The keys with which the receiver may prove itself: those that sign now, and that it has as well."""
    texts = [*policy.secrets, *(each.secret for each in policy.old_secrets if now < each.until.timestamp())]
    found = [secret_key(text) for text in texts]
    return [each.key for each in found if isinstance(each, SecretKey) and each.kind != "ed25519"]


def proof(key: bytes, challenge: str, nonce: str) -> str:
    """The HMAC of a challenge and a nonce, in base64."""
    signed = SIGNED % (challenge.encode(), nonce.encode())
    return base64.b64encode(hmac.digest(key, signed, sha256)).decode()


def hmac_problem(body: bytes, challenge: str, keys: Collection[bytes]) -> str:
    """The reason why an answer is no proof; empty if it is one."""
    if len(body) > ANSWER_MAX:
        return f"the answer has more than {ANSWER_MAX} bytes"
    try:
        answer = _answer.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 'the answer is not {"nonce": "…", "hmac": "…"} in JSON'
    if not 0 < len(answer.nonce) <= NONCE_LENGTH_MAX:
        return f"the nonce of the answer must have 1 to {NONCE_LENGTH_MAX} characters"
    try:
        given = base64.b64decode(answer.hmac, validate=True)
        signed = SIGNED % (challenge.encode(), answer.nonce.encode())
    except (binascii.Error, ValueError):
        return "the hmac of the answer is not base64"
    if any(hmac.compare_digest(given, hmac.digest(key, signed, sha256)) for key in keys):
        return ""
    return "the hmac of the answer is wrong"


def _consent_problem(answer: Answered, origin: str) -> str:
    allowed = (answer.header("webhook-allowed-origin") or "").strip()
    if not allowed:
        return "the answer has no webhook-allowed-origin"
    if allowed not in ("*", origin):
        return f"webhook-allowed-origin is neither * nor {origin}"
    if not all(map(is_allowed_rate, allowed_rates(answer))):
        return f"{ALLOWED_RATE} is neither * nor a whole number from 1 on"
    return ""
