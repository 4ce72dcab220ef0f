"""Signatures: Standard Webhooks 1.0, and Angarium's own, which never changes.

Both are over `id.number.body`, by HMAC-SHA256, HMAC-SHA512 or ed25519, as each secret says. For
`webhook-signature` the number is the attempt's timestamp, since verifiers refuse requests that are older than
five minutes; for `angarium-signature` it is the sequence, so that the same event has the same signature on
every attempt while the secrets stay.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from hashlib import sha256, sha512
from typing import TYPE_CHECKING, Protocol, assert_never

from actors.configuration.signing_secrets import PUBLIC_PREFIX, SEED_BYTES, SecretKey, secret_key
from actors.errors import BadInput

if TYPE_CHECKING:
    from nacl.signing import SigningKey


SIGNED_CONTENT = b"%b.%b.%b"
"""The bytes of a signature: the event's id, a number as its header says it, and the body."""
SIGNATURE_BYTES = 64
"""Length of an ed25519 signature."""


class InvalidSecret(BadInput):
    """A secret that cannot be used; the text names the field and the remedy, and never shows the secret."""


class VerifyingKey(Protocol):
    """A key that verifies signatures."""

    def verify(self, signature: bytes, content: bytes) -> bool:
        """True if the signature, with its version, is that of the content."""
        ...


class SigningSecret(VerifyingKey, Protocol):
    """A key that can sign, and that no repr shows."""

    def sign(self, content: bytes) -> bytes:
        """The version of the signature, a comma, and the signature in base64."""
        ...


class HmacSecret:
    """A key for HMAC-SHA256 (`v1,`) or HMAC-SHA512 (`v1s512,`), which may not be longer than a block."""

    __slots__ = ("_inner", "_outer", "_version")

    def __init__(self, key: bytes, version: bytes = b"v1,") -> None:
        # HMAC (RFC 2104) with the padded key hashed once, and both hashes copied for each signature: 1.7 µs
        # over 1 kB, where a copy of `hmac.new` takes 2.3 and `hmac.digest` 3.0.
        digest = sha512 if version == b"v1s512," else sha256
        block = key.ljust(digest().block_size, b"\0")
        self._inner = digest(bytes(byte ^ 0x36 for byte in block))
        self._outer = digest(bytes(byte ^ 0x5C for byte in block))
        self._version = version

    def __repr__(self) -> str:
        return "HmacSecret(…)"

    def sign(self, content: bytes) -> bytes:
        """See `SigningSecret`."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(content)
        outer.update(inner.digest())
        return self._version + binascii.b2a_base64(outer.digest(), newline=False)

    def verify(self, signature: bytes, content: bytes) -> bool:
        """See `VerifyingKey`."""
        return hmac.compare_digest(signature, self.sign(content))


class Ed25519Secret:
    """A key for ed25519 (`v1a,`), whose public key may be shown."""

    __slots__ = ("_key",)

    def __init__(self, seed: bytes) -> None:
        self._key = _ed25519_key(seed)

    def __repr__(self) -> str:
        return "Ed25519Secret(…)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")

    def sign(self, content: bytes) -> bytes:
        """See `SigningSecret`."""
        return b"v1a," + binascii.b2a_base64(self._key.sign(content).signature, newline=False)

    def verify(self, signature: bytes, content: bytes) -> bool:
        """See `VerifyingKey`. The same content always has the same signature."""
        return hmac.compare_digest(signature, self.sign(content))


class PublicKey:
    """The public key of an ed25519 secret, which verifies and cannot sign."""

    def __init__(self, key: bytes) -> None:
        from nacl.signing import VerifyKey

        self._key = VerifyKey(key)

    def verify(self, signature: bytes, content: bytes) -> bool:
        """See `VerifyingKey`."""
        from nacl.exceptions import BadSignatureError

        version, _, encoded = signature.partition(b",")
        try:
            found = base64.b64decode(encoded, validate=True)
            if version != b"v1a" or len(found) != SIGNATURE_BYTES:
                return False
            self._key.verify(content, found)
        except (BadSignatureError, binascii.Error):
            return False
        return True


def _ed25519_key(seed: bytes) -> "SigningKey":
    from nacl.signing import SigningKey  # Here: no process loads libsodium without such a secret.

    return SigningKey(seed)


def parse_secret(text: str, field: str) -> SigningSecret:
    """The secret that a configuration's `field` holds. Raises InvalidSecret."""
    found = secret_key(text)
    if isinstance(found, str):
        raise InvalidSecret(f"{field}: {found}")
    match found.kind:
        case "hmac-sha256":
            return HmacSecret(found.key)
        case "hmac-sha512":
            return HmacSecret(found.key, b"v1s512,")
        case "ed25519":
            return Ed25519Secret(found.key)
        case _:
            assert_never(found.kind)


def parse_key(text: str, field: str) -> VerifyingKey:
    """The secret or public key (`whpk_`) that a receiver verifies with. Raises InvalidSecret."""
    if not text.startswith(PUBLIC_PREFIX):
        return parse_secret(text, field)
    try:
        key = base64.b64decode(text.removeprefix(PUBLIC_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSecret(f"{field}: not base64 after {PUBLIC_PREFIX}; copy it again") from None
    if len(key) != SEED_BYTES:
        raise InvalidSecret(f"{field}: must hold {SEED_BYTES} bytes, has {len(key)}; copy it again")
    return PublicKey(key)


def public_key(text: str) -> str | None:
    """The public key of a `whsk_` secret, with its prefix; None for any other text."""
    match secret_key(text):
        case SecretKey(kind="ed25519", key=seed):
            return PUBLIC_PREFIX + base64.b64encode(bytes(_ed25519_key(seed).verify_key)).decode()
        case _:
            return None


def sign(secrets: Sequence[SigningSecret], event_id: bytes, number: int | bytes, body: bytes) -> bytes:
    """One signature per secret, in their order, joined by spaces: the value of a signature header.

    `number` is a time, or as bytes what `angarium-sequence` says: `17`, or `17-42` for a batch.
    """
    text = b"%d" % number if isinstance(number, int) else number
    content = SIGNED_CONTENT % (event_id, text, body)
    match secrets:
        case [only]:
            return only.sign(content)
        case _:
            return b" ".join([secret.sign(content) for secret in secrets])
