"""Rates and sizes as people write them: `10/second`, `256KiB`."""

import re

import msgspec

from actors.errors import AngariumError
from actors.policy import SECONDS, Rate

_RATE = re.compile(r"\s*([0-9.]+)\s*/\s*([a-z]+)\s*\Z")
_SIZE = re.compile(r"\s*(\d+)\s*([KMGT]?)(i?)B?\s*\Z", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class BadQuantity(AngariumError):
    """A rate or a size that cannot be read; the text says how to write it."""


def rate(text: str, burst: int | None = None) -> Rate:
    """`<limit>/<second, minute or hour>`, such as `10/second` or `0.5/minute`."""
    match = _RATE.match(text)
    if match is None or match[2] not in SECONDS:
        raise BadQuantity(f"{text!r} is not a rate; write it as 10/second, 300/minute or 5000/hour")
    members = {"limit": match[1], "per": match[2], "burst": burst}
    try:
        return msgspec.convert(members, Rate, strict=False)
    except msgspec.ValidationError:
        bounds = "a limit above 0, at most a million, and a burst from 1 to a million"
        raise BadQuantity(f"{text!r} with burst {burst} is no possible rate; give {bounds}") from None


def size(text: str) -> int:
    """Bytes: `262144`, `256KiB` (of 1,024), `100MB` (of 1,000)."""
    match = _SIZE.match(text)
    if match is None or (match[3] and not match[2]):
        raise BadQuantity(f"{text!r} is not a size; write bytes, or a number with KiB, MiB, GiB, KB, MB, GB")
    base: int = 1024 if match[3] else 1000
    return int(match[1]) * int(base ** _POWERS[match[2].upper()])


def bytes_text(count: int) -> str:
    """A number of bytes for people: `256 KiB`."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"
