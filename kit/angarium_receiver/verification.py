"""Verification of a request: who sent it, when, and with which numbers.

`webhook-signature` is that of Standard Webhooks 1.0 (https://www.standardwebhooks.com), over
`id.timestamp.body`. `angarium-signature` is over `id.sequence.body`, so the number can be relied on, too.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from angarium_receiver.keys import HmacKey, Key, PublicKey

TIMESTAMP_TOLERANCE_S = 300.0
"""Largest error of the timestamp, either way (Standard Webhooks)."""
SIGNATURES_MAX = 32
"""Signatures of a header that are looked at."""
ED25519_MAX = 8
"""Signatures by ed25519 that are tried, as many as a receiver has secrets: each takes milliseconds."""
DEAD_LETTER_AGE_S = 30 * 86_400
"""Longest time after which an event may come again with the same id and body."""

# Dots only in the id of a batch: else `id.number.body` could be cut in two ways.
_ID = re.compile(
    r"(?:[A-Za-z0-9_:-]{1,128}|[A-Za-z][A-Za-z0-9_-]{0,63}\.[A-Za-z0-9_-]{1,64}:[0-9]{1,15}-[0-9]{1,15})\Z"
)
_NUMBER = re.compile(r"[0-9]{1,19}\Z")
_SEQUENCE = re.compile(r"([1-9][0-9]{0,14})(?:-([1-9][0-9]{0,14}))?\Z")


class VerificationError(Exception):
    """A request that is not genuine, or too old. Answer it with 401: then a wrong key only delays events."""


@dataclass(frozen=True)
class Delivery:
    """A genuine request.

    - `id`: of the event, or of the batch; the same on every attempt.
    - `numbers`: of its events, in order: one, several for a batch, none for a ping. A batch is a JSON object
      whose `events` have `sequence`, `id`, `type`, `timestamp` and `data` or `data_base64`.
    - `new`: those of them that were not handled before, as far as the receiver has `Numbers`.
    - `type`: of the event. `attempt`: 1, 2, 3 …
    - `again`: not empty if an operator had the event sent again (`angarium-again`).

    Id, numbers and body are signed; type, attempt, `again` and content type are not.
    """

    id: str
    numbers: tuple[int, ...]
    type: str
    attempt: int
    body: bytes
    again: str = ""
    content_type: str = ""
    new: tuple[int, ...] = ()

    @property
    def is_ping(self) -> bool:
        """True for a ping, which is no event: answer it, and do nothing."""
        return not self.numbers and self.type == "angarium.ping"


def verify(headers: Mapping[str, str], body: bytes, keys: Sequence[Key], now: float) -> Delivery:
    """The delivery, if one of the keys has made each signature. Raises VerificationError.

    - `headers`: by name, in any case. `body`: the raw bytes, before anything parses them.
    - `keys`: those of all secrets that may be in use, from `parse_key`.
    - `now`: in seconds since the epoch (`time.time()`).
    """
    if not keys:
        raise ValueError("verify needs a key")
    lower = {name.lower(): value for name, value in headers.items()}
    event_id, timestamp = lower.get("webhook-id", ""), lower.get("webhook-timestamp", "")
    if not _ID.match(event_id):
        raise VerificationError("no usable webhook-id")
    if not _NUMBER.match(timestamp):
        raise VerificationError("no usable webhook-timestamp")
    _check("webhook-signature", lower, f"{event_id}.{timestamp}.".encode() + body, keys)
    if abs(now - int(timestamp)) > TIMESTAMP_TOLERANCE_S:
        raise VerificationError(f"webhook-timestamp is {now - int(timestamp):.0f} s old")
    numbers: tuple[int, ...] = ()
    if "angarium-sequence" in lower:
        given = lower["angarium-sequence"]
        _check("angarium-signature", lower, f"{event_id}.{given}.".encode() + body, keys)
        numbers = _numbers_of(given, body)
        if abs(numbers[0] - int(timestamp)) <= DEAD_LETTER_AGE_S:
            raise VerificationError("angarium-sequence is a time, whose signature was captured")
    attempt = lower.get("angarium-attempt", "")
    return Delivery(
        id=event_id, numbers=numbers, new=numbers, body=body,
        type=lower.get("angarium-event", ""),
        attempt=int(attempt) if _NUMBER.match(attempt) else 1,
        again=lower.get("angarium-again", ""),
        content_type=lower.get("content-type", ""),
    )  # fmt: skip


def _numbers_of(given: str, body: bytes) -> tuple[int, ...]:
    """The numbers of the events; those of a batch stand in its body. Raises VerificationError."""
    match = _SEQUENCE.match(given)
    if match is None:
        raise VerificationError("no usable angarium-sequence")
    if match[2] is None:
        return (int(match[1]),)
    try:
        numbers = tuple(event["sequence"] for event in json.loads(body)["events"])
    except (ValueError, RecursionError, LookupError, TypeError):
        raise VerificationError("the body is no batch") from None
    rises = all(isinstance(each, int) for each in numbers) and numbers == tuple(sorted(set(numbers)))
    if not (rises and numbers and (numbers[0], numbers[-1]) == (int(match[1]), int(match[2]))):
        raise VerificationError("the numbers of the batch are not those of angarium-sequence")
    return numbers


def _check(name: str, headers: Mapping[str, str], content: bytes, keys: Sequence[Key]) -> None:
    """Raises VerificationError, unless a signature in the header of that name is by one of the keys."""
    given = headers.get(name, "").split()
    if not given:
        raise VerificationError(f"{name} is missing")
    expected = {(key.version, key.sign(content)) for key in keys if isinstance(key, HmacKey)}
    tries = ED25519_MAX
    for each in given[:SIGNATURES_MAX]:
        version, _, encoded = each.partition(",")
        try:
            signature = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            continue  # A signature of another scheme.
        if any(version == known and hmac.compare_digest(signature, made) for known, made in expected):
            return
        for key in keys:
            if isinstance(key, PublicKey) and version == key.version and tries:
                tries -= 1
                if key.verify(signature, content):
                    return
    raise VerificationError(f"{name} is wrong")
