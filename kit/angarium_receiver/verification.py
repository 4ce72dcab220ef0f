"""Verification of a request: who sent it, when, and with which numbers.

`webhook-signature` is that of Standard Webhooks 1.0 (https://www.standardwebhooks.com), over
`id.timestamp.body`. `angarium-signature` is over `id.sequence.body`, so the number can be relied on, too.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from angarium_receiver.keys import Key

TIMESTAMP_TOLERANCE_S = 300.0
"""Largest error of the timestamp, either way (Standard Webhooks)."""
SIGNATURES_MAX = 32
"""Signatures of a header that are tried; Angarium makes one for each secret, 8 at most."""

_NUMBER = re.compile(r"[0-9]{1,19}\Z")
_NUMBERS = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?\Z")


class VerificationError(Exception):
    """A request that is not genuine, or too old. Answer it with 401: then a wrong key only delays events."""


@dataclass(frozen=True)
class Delivery:
    """A genuine request.

    - `id`: of the event, or of the batch; the same on every attempt.
    - `first`, `last`: the numbers of its events, the same for one event; None for a ping.
    - `type`: of the event. `attempt`: 1, 2, 3 …
    - `again`: not empty if an operator had the event sent again (`angarium-again`).
    """

    id: str
    first: int | None
    last: int | None
    type: str
    attempt: int
    body: bytes
    again: str = ""
    content_type: str = ""

    @property
    def is_ping(self) -> bool:
        """True for a ping, which is no event: answer it, and do nothing."""
        return self.first is None


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
    if not event_id or not event_id.isascii():
        raise VerificationError("no usable webhook-id")
    if not _NUMBER.match(timestamp):
        raise VerificationError("no usable webhook-timestamp")
    _check("webhook-signature", lower, f"{event_id}.{timestamp}.".encode() + body, keys)
    if abs(now - int(timestamp)) > TIMESTAMP_TOLERANCE_S:
        raise VerificationError(f"webhook-timestamp is {now - int(timestamp):.0f} s old")
    first = last = None
    if "angarium-sequence" in lower:
        numbers = lower["angarium-sequence"]
        match = _NUMBERS.match(numbers)
        if match is None:
            raise VerificationError("no usable angarium-sequence")
        _check("angarium-signature", lower, f"{event_id}.{numbers}.".encode() + body, keys)
        first = int(match[1])
        last = int(match[2] or match[1])
        if not 0 < first <= last:
            raise VerificationError("no usable angarium-sequence")
    attempt = lower.get("angarium-attempt", "")
    return Delivery(
        id=event_id, first=first, last=last, body=body,
        type=lower.get("angarium-event", ""),
        attempt=int(attempt) if _NUMBER.match(attempt) else 1,
        again=lower.get("angarium-again", ""),
        content_type=lower.get("content-type", ""),
    )  # fmt: skip


def _check(name: str, headers: Mapping[str, str], content: bytes, keys: Sequence[Key]) -> None:
    """Raises VerificationError, unless a signature in the header of that name is by one of the keys."""
    given = headers.get(name, "").split()
    if not given:
        raise VerificationError(f"{name} is missing")
    for each in given[:SIGNATURES_MAX]:
        version, _, encoded = each.partition(",")
        try:
            signature = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            continue  # A signature of another scheme.
        if any(key.version == version and key.verify(signature, content) for key in keys):
            return
    raise VerificationError(f"{name} is wrong")
