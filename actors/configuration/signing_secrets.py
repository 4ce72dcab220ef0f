"""Signing secrets as a configuration has them: a prefix that names the algorithm, and the key in base64."""

from typing import Literal

from msgspec import Struct

from actors.configuration.encoded_keys import decoded_key, length_problem

Kind = Literal["hmac-sha256", "hmac-sha512", "ed25519"]
"""The algorithm of a secret."""
PREFIXES: dict[str, Kind] = {"whsec_": "hmac-sha256", "whs512_": "hmac-sha512", "whsk_": "ed25519"}
PUBLIC_PREFIX = "whpk_"
"""Prefix of the public key that belongs to a `whsk_` secret."""
SEED_BYTES = 32
"""Length of an ed25519 seed, the secret key itself."""
SEED_AND_PUBLIC_BYTES = 64
"""Length of a seed with its public key behind it, as libsodium and svix write it."""
_PREFIXES_IN_WORDS = "whsec_, whs512_ or whsk_"


class SecretKey(Struct, frozen=True, gc=False):
    """A key, and what it signs with. Its repr shows nothing."""

    kind: Kind
    key: bytes

    def __repr__(self) -> str:
        return "SecretKey(…)"


def secret_key(text: str) -> SecretKey | str:
    """The key of a secret, or why it cannot be used, in words that do not repeat it. Padding may miss."""
    prefix, kind = next((each for each in PREFIXES.items() if text.startswith(each[0])), ("", None))
    if kind is None:
        if text.startswith(PUBLIC_PREFIX):
            return "is a public key, which cannot sign; give the secret key that it belongs to (whsk_…)"
        return f"must begin with {_PREFIXES_IN_WORDS}"
    key = decoded_key(text, prefix)
    if isinstance(key, str):
        return key
    if kind == "ed25519":
        if len(key) not in (SEED_BYTES, SEED_AND_PUBLIC_BYTES):
            return f"must hold {SEED_BYTES} or {SEED_AND_PUBLIC_BYTES} bytes, has {len(key)}; make a new one"
        return SecretKey(kind, key[:SEED_BYTES])
    return length_problem(key, "make a new one") or SecretKey(kind, key)


def is_hmac_secret(text: str) -> bool:
    """True for a secret that the receiver has as well: of an ed25519 key it has only the public half."""
    found = secret_key(text)
    return not isinstance(found, str) and found.kind != "ed25519"
