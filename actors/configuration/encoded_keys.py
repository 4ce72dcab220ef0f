"""Keys as text: a prefix that names their purpose, and base64 behind it."""

import base64
import binascii

KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64


def decoded_key(text: str, prefix: str) -> bytes | str:
    """The bytes of a key with that prefix, or why there are none, in words that do not repeat it.

    Padding may be missing.
    """
    encoded = text.removeprefix(prefix)
    if encoded == text:
        return f"must begin with {prefix}"
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return f"not base64 after {prefix}; copy it again"


def length_problem(key: bytes, remedy: str) -> str | None:
    """The reason why a key is too short or too long for an HMAC; None if it is neither."""
    if KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        return None
    return f"must hold {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, has {len(key)}; {remedy}"
