"""Keys that verify signatures: `whsec_` and `whs512_` secrets, and public keys `whpk_` of ed25519 secrets."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Union

from angarium_receiver import ed25519

KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
_HMACS = {"whsec_": ("v1", "sha256"), "whs512_": ("v1s512", "sha512")}
_PUBLIC = "whpk_"


class InvalidKey(ValueError):
    """A text that is no key; the message says why, and never shows the text."""


class HmacKey:
    """A secret for HMAC-SHA256 (`v1`) or HMAC-SHA512 (`v1s512`)."""

    def __init__(self, key: bytes, version: str, digest: str) -> None:
        self._key = key
        self._digest = digest
        self.version = version

    def __repr__(self) -> str:
        return "HmacKey(…)"

    def verify(self, signature: bytes, content: bytes) -> bool:
        """True if the signature, decoded and without its version, is that of the content."""
        return hmac.compare_digest(signature, self.sign(content))

    def sign(self, content: bytes) -> bytes:
        """The HMAC of the content."""
        return hmac.new(self._key, content, self._digest).digest()

    def prove(self, challenge: str, nonce: str) -> str:
        """The proof of a handshake: always HMAC-SHA256, in base64."""
        signed = f"angarium.handshake.{challenge}.{nonce}".encode()
        return base64.b64encode(hmac.new(self._key, signed, "sha256").digest()).decode()


class PublicKey:
    """The public key of an ed25519 secret (`v1a`)."""

    version = "v1a"

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"PublicKey({base64.b64encode(self._key).decode()})"

    def verify(self, signature: bytes, content: bytes) -> bool:
        """True if the signature, decoded and without its version, is that of the content."""
        return ed25519.verify(self._key, signature, content)


Key = Union[HmacKey, PublicKey]


def parse_key(text: str) -> Key:
    """The key of a text such as `whsec_…`, `whs512_…` or `whpk_…`. Raises InvalidKey."""
    prefix = text[: text.find("_") + 1]
    if prefix == "whsk_":
        raise InvalidKey(
            "this is the sender's private key: only its public key (whpk_) verifies; "
            "`angarium receiver get` shows it"
        )
    if prefix != _PUBLIC and prefix not in _HMACS:
        raise InvalidKey("must begin with whsec_, whs512_ or whpk_; copy it again")
    try:
        encoded = text[len(prefix) :]
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidKey(f"not base64 after {prefix}; copy it again") from None
    if prefix == _PUBLIC:
        if len(key) != 32:
            raise InvalidKey(f"a public key has 32 bytes, this has {len(key)}; copy it again")
        if not ed25519.is_usable(key):
            raise InvalidKey("this is no public key; copy it again")
        return PublicKey(key)
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise InvalidKey(f"has {len(key)} bytes, must have {KEY_BYTES_MIN} to {KEY_BYTES_MAX}; copy it again")
    return HmacKey(key, *_HMACS[prefix])
