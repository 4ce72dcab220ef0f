"""The keys of an installation, which seal and open single values: AES-256-GCM, with a random nonce each.

A sealed value is `sealed:<key id>:<base64url of nonce, ciphertext and tag>`. The receiver and the member are
authenticated with it, so a value opens nowhere else. Random nonces of 96 bits allow 2^32 values for one key
(NIST SP 800-38D, 8.3); an installation seals a value when it changes, so it never comes near that.
(docs/decisions/sealed-secrets.md)
"""

import base64
import binascii
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from actors.configuration.secret_places import SEALED_PREFIX

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+\Z")


class CannotOpen(Struct, frozen=True):
    """The reason why a sealed value cannot be opened, with the remedy. It shows nothing of the value.

    `needs_key`: it opens once this process has a further key.
    """

    why: str
    needs_key: bool = False


class Keys:
    """Keys by their ids; the first one, `present`, seals, and all of them open. Its repr shows no key."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self.present = next(iter(keys), None)
        self._ciphers = {name: _cipher(key) for name, key in keys.items()}

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._ciphers)})"

    def __reduce__(self) -> str:
        raise TypeError("keys are not pickled")

    def __bool__(self) -> bool:
        return self.present is not None

    def seal(self, receiver: str, member: str, text: str) -> str:
        """The text, sealed by the present key for this member of this receiver alone."""
        if self.present is None:
            raise ValueError("there is no key to seal with")
        nonce = secrets.token_bytes(NONCE_BYTES)
        cipher = self._ciphers[self.present]
        sealed = nonce + cipher.encrypt(nonce, text.encode(), _associated(receiver, member))
        return f"{SEALED_PREFIX}{self.present}:{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"

    def open(self, receiver: str, member: str, sealed: str) -> str | CannotOpen:
        """The text that was sealed for this member of this receiver."""
        key, data = _parts(sealed)
        if data is None:
            return CannotOpen("is not a sealed value; put the secret again")
        if (cipher := self._ciphers.get(key)) is None:
            remedy = "add that key to the key file (ANGARIUM_KEY_FILE)"
            return CannotOpen(f"is sealed by the key {key}; {remedy}", needs_key=True)
        from cryptography.exceptions import InvalidTag

        nonce, ciphertext = data[:NONCE_BYTES], data[NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, ciphertext, _associated(receiver, member)).decode()
        except InvalidTag:
            return CannotOpen(
                f"was changed, or sealed for another receiver or member, or by another key than the {key} of "
                "the key file; put the secret again"
            )


NO_KEYS = Keys({})


def no_keys() -> Keys:
    """The keys of a process without a key file."""
    return NO_KEYS


def key_of(sealed: str) -> str:
    """The id of the key that a value was sealed with; empty if it is no sealed value."""
    return _parts(sealed)[0]


def is_key_id(text: str) -> bool:
    """True for a text that may be the id of a key."""
    return _KEY_ID.match(text) is not None


def _parts(sealed: str) -> tuple[str, bytes | None]:
    """The key's id, and what it sealed; nothing is accepted but what `seal` writes."""
    if not sealed.startswith(SEALED_PREFIX):
        return "", None
    key, _, encoded = sealed.removeprefix(SEALED_PREFIX).partition(":")
    if not is_key_id(key) or not _BASE64URL.match(encoded):
        return "", None
    try:
        data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except binascii.Error:
        return "", None
    # Unused bits of the last character are zero: else several texts would mean the same value.
    canonical = base64.urlsafe_b64encode(data).decode().rstrip("=") == encoded
    return (key, data) if canonical and len(data) >= NONCE_BYTES + TAG_BYTES else ("", None)


def _associated(receiver: str, member: str) -> bytes:
    return f"{receiver}\0{member}".encode()


def _cipher(key: bytes) -> "AESGCM":
    # Only an installation that seals needs it: the import takes as long as that of a small command.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
