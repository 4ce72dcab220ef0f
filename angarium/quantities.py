"""Rates, sizes, times and addresses as people write them: `10/second`, `256KiB`, `2h` ago, `[::1]:80`."""

import re
from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from actors.configuration.parsing import rate_members
from actors.configuration.policy import Rate
from actors.errors import BadInput

_SIZE = re.compile(r"\s*(\d{1,18})\s*([KMGT]?)(i?)B?\s*\Z", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})\Z")
_AGE = re.compile(r"\s*(\d{1,9})\s*([smhdw])\s*\Z")
_SCHEMES = ("nats", "tls", "ws", "wss")
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
CONSOLE_PATH = "/console"
_NO_PART_OF_A_CONSOLE_URL = " @?#\\"
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
PORT_MAX = 65_535
INSTANT_MAX = 253_402_300_799
"""The last second of the year 9999: no later one can be written."""
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class BadQuantity(BadInput):
    """A rate, a size, a time or an address that cannot be read; the text says how to write it."""


def parse_rate(text: str, burst: int | None = None) -> Rate:
    """`<limit>/<period>`, such as `10/second`, `10/s` or `0.5/minute`, and the burst that goes with it."""
    members = rate_members(text)
    if members is None:
        raise BadQuantity(f"{text!r} is not a rate; write it as 10/second, 300/minute or 5000/hour")
    try:
        return msgspec.convert(members | {"burst": burst}, Rate)
    except msgspec.ValidationError:
        bounds = "a limit above 0 and up to a million, and a burst from 1 to a million"
        with_burst = "" if burst is None else f" with burst {burst}"
        raise BadQuantity(f"{text!r}{with_burst} is not a possible rate; give {bounds}") from None


def parse_size(text: str) -> int:
    """Bytes: `262144`, `256KiB` (of 1,024), `100MB` (of 1,000)."""
    match = _SIZE.match(text)
    if match is None or (match[3] and not match[2]):
        raise BadQuantity(f"{text!r} is not a size; write bytes, or a number with KiB, MiB, GiB, KB, MB, GB")
    base: int = 1024 if match[3] else 1000
    return int(match[1]) * int(base ** _POWERS[match[2].upper()])


def count_text(count: int, noun: str) -> str:
    """A number of things for people: `1 letter`, `2,000 letters`."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def bytes_text(count: int) -> str:
    """A number of bytes for people: `256 KiB`."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"


def milliseconds_text(milliseconds: float) -> str:
    """A short time for people: `0.42 ms`, `43 ms`, `1.03 s`, `12.3 s`."""
    return seconds_text(milliseconds / 1000) if milliseconds >= 999.5 else f"{milliseconds:.3g} ms"


def seconds_text(seconds: float) -> str:
    """A time for people: `0.042 s`, `1.00 s`, `12.3 s`, `1,235 s`."""
    if seconds >= 99.95:
        return f"{seconds:,.0f} s"
    return (
        f"{seconds:.1f} s"
        if seconds >= 9.995
        else f"{seconds:.2f} s"
        if seconds >= 0.9995
        else f"{seconds:.3g} s"
    )


def parse_address(text: str) -> tuple[str, int]:
    """Host and port to listen on: `127.0.0.1:9464`, `[::]:9464`; port 0 is any free one."""
    match = _ADDRESS.match(text)
    if match is None or int(match[3]) > PORT_MAX:
        raise BadQuantity(f"{text!r} is not an address; write it as 127.0.0.1:9464 or [::1]:9464")
    return match[1] or match[2], int(match[3])


def is_server_address(text: str) -> bool:
    """True for the address of a NATS server: `nats://user:password@host:4222`, `tls://host`, `host`."""
    try:
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        return text.isprintable() and parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_console_url(text: str) -> bool:
    """True for the address of a console: `https://host`, also with its path, and http for this machine only.

    Links that sign people in begin with it, so what their browsers then send must be encrypted on its way.
    """
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0 and parts.netloc.isascii()
    except ValueError:
        return False
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _THIS_MACHINE)
    is_bare = text.isprintable() and not any(each in text for each in _NO_PART_OF_A_CONSOLE_URL)
    return has_host and is_safe and is_bare and parts.path.rstrip("/") in ("", CONSOLE_PATH)


def parse_age(text: str) -> float:
    """Seconds of an age as people write it: `12h`, `30d`, `8w`."""
    if match := _AGE.match(text):
        return float(int(match[1]) * _UNITS_S[match[2]])
    raise BadQuantity(f"{text!r} is not an age; write it as 45s, 30m, 12h, 30d or 8w")


def parse_time(text: str, now: float) -> float:
    """Seconds since the epoch: an age such as `15m`, `2h`, `3d`, or a time of RFC 3339 with its zone.

    A time before the epoch is taken as the epoch, since no data is older.
    """
    if _AGE.match(text):
        return max(0.0, now - parse_age(text))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadQuantity(
            f"{text!r} is not a time; write an age (30s, 15m, 2h, 3d, 1w) or 2026-01-31T12:00:00Z"
        )
    return min(max(0.0, at.timestamp()), INSTANT_MAX)
