"""The check of a request by its receiver: both signatures, and that the first is fresh.

`webhook-signature` is that of Standard Webhooks 1.0 (https://www.standardwebhooks.com): made over
`id.timestamp.body`. `angarium-signature` is over `id.sequence.body`; a ping has no sequence, and so none.
"""

import re
from collections.abc import Mapping, Sequence

from angarium.delivery.signing import SIGNED_CONTENT, VerifyingKey

TIMESTAMP_TOLERANCE_S = 300
"""Largest error of the timestamp, either way (Standard Webhooks)."""
_NUMBER = re.compile(r"[0-9]{1,19}\Z")
_SIGNED_NUMBER = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?\Z")
"""A time, a sequence, or the first and last sequence of a batch."""


def problems(headers: Mapping[str, str], body: bytes, keys: Sequence[VerifyingKey], now: float) -> list[str]:
    """Reasons not to trust the request, a phrase each; none if it is genuine. Header names in lower case.

    One of the keys must have made each signature. `now` is in seconds since the epoch.
    """
    found = _signature_problems("webhook-signature", "webhook-timestamp", headers, body, keys)
    timestamp = number(headers.get("webhook-timestamp"))
    if timestamp is not None and abs(now - timestamp) > TIMESTAMP_TOLERANCE_S:
        found.append(f"webhook-timestamp is {now - timestamp:.0f} s old")
    if "angarium-sequence" in headers or "angarium-signature" in headers:
        found += _signature_problems("angarium-signature", "angarium-sequence", headers, body, keys)
    return found


def number(text: str | None) -> int | None:
    """A number as it stands in a header; None for anything else, and for one that is too long."""
    return int(text) if text is not None and _NUMBER.match(text) else None


def first_and_last(text: str | None) -> tuple[int, int] | None:
    """The first and last sequence in a header, which are the same without a batch; None for anything else."""
    found = _SIGNED_NUMBER.match(text) if text is not None else None
    return None if found is None else (int(found[1]), int(found[2] or found[1]))


def _signature_problems(
    name: str, number_name: str, headers: Mapping[str, str], body: bytes, keys: Sequence[VerifyingKey]
) -> list[str]:
    event_id, header = headers.get("webhook-id", ""), headers.get(name, "")
    signed_number = headers.get(number_name, "")
    if not event_id or not event_id.isascii():
        return [f"{name}: no usable webhook-id"]
    if not _SIGNED_NUMBER.match(signed_number):
        return [f"{name}: no usable {number_name}"]
    if not header:
        return [f"{name} is missing"]
    content = SIGNED_CONTENT % (event_id.encode(), signed_number.encode(), body)
    signatures = [each.encode("latin-1") for each in header.split()]
    if any(key.verify(each, content) for key in keys for each in signatures):
        return []
    return [f"{name} is wrong"]
