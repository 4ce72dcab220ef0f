"""The text of a token, `ang_<id>_<secret>`: the id finds it, and the secret proves it.

The secret is 256 random bits, so its plain hash reveals nothing; it is shown once and stored nowhere.
"""

import base64
import hashlib
import hmac
import re
import secrets

from msgspec import Struct

from streams.buckets.api_tokens import Token

_TEXT = re.compile(r"ang_([a-z0-9]{12})_([A-Za-z0-9_-]{43})\Z")
_ID_BYTES = 7
_NO_TOKEN = hashlib.sha256(b"none").hexdigest()
"""The hash to compare with if there is no such token, so that the response time reveals nothing."""


class Secret(Struct, frozen=True):
    """The id and secret of a token. Its repr shows nothing."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return "Secret(…)"

    @property
    def text(self) -> str:
        """The text that its holder sends."""
        return f"ang_{self.id}_{self.secret}"

    @property
    def hash(self) -> str:
        """The hash of the secret, which is stored."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def new_secret() -> Secret:
    """A new id and secret."""
    token = base64.b32encode(secrets.token_bytes(_ID_BYTES)).decode().lower().rstrip("=")
    return Secret(token, secrets.token_urlsafe(32))


def parse_token(text: str) -> Secret | None:
    """The token in a text that a client sent; None if there is none."""
    match = _TEXT.match(text)
    return None if match is None else Secret(match[1], match[2])


def proves(secret: Secret, token: Token | None) -> bool:
    """True if the secret belongs to the token."""
    return hmac.compare_digest(secret.hash, _NO_TOKEN if token is None else token.hash) and token is not None
