"""Verification of ed25519 signatures (RFC 8032, 5.1), in Python alone.

It takes some milliseconds. Nothing here is secret, so its time may depend on the data; signing is not here.
"""

from __future__ import annotations

import hashlib

P = 2**255 - 19
"""The prime of the field."""
ORDER = 2**252 + 27742317777372353535851937790883648493
"""The order of the base point."""
D = -121665 * pow(121666, P - 2, P) % P
SQRT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)

Point = tuple[int, int, int, int]
"""X, Y, Z and T: x = X/Z, y = Y/Z, x·y = T/Z."""

IDENTITY: Point = (0, 1, 1, 0)


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """True if this is the signature of the message by the owner of the public key (32 bytes)."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, r = _decode(public), _decode(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if key is None or r is None or s >= ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + public + message).digest()
    h = int.from_bytes(digest, "little") % ORDER
    return _equal(_times(s, BASE), _plus(r, _times(h, key)))


def is_usable(public: bytes) -> bool:
    """True if this is a point, and not one of the eight for which signatures need no secret."""
    key = _decode(public)
    return key is not None and not _equal(_times(8, key), IDENTITY)


def _plus(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def _times(factor: int, point: Point) -> Point:
    result = IDENTITY
    while factor:
        if factor & 1:
            result = _plus(result, point)
        point = _plus(point, point)
        factor >>= 1
    return result


def _equal(p: Point, q: Point) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0


def _decode(encoded: bytes) -> Point | None:
    """The point of 32 bytes (RFC 8032, 5.1.3); None if there is none."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= P:
        return None
    x_squared = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x_squared, (P + 3) // 8, P)
    if (x * x - x_squared) % P:
        x = x * SQRT_OF_MINUS_1 % P
    if (x * x - x_squared) % P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


def _base() -> Point:
    point = _decode((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
    assert point is not None
    return point


BASE = _base()
