"""Signs in the convention of a receiver: one header as the sender before Angarium made it."""

import base64
import hmac
from typing import assert_never

from actors.configuration.custom_signature import CustomSignature, parts_of
from actors.configuration.policy import Policy
from actors.configuration.signing_secrets import SecretKey, secret_key
from actors.machine.event import Event
from angarium.delivery.signing import InvalidSecret

Parts = list[tuple[str, bytes]]
"""A template in parts: each a placeholder's name, or an empty name and a text."""


class CustomSigner:
    """A custom signature, made ready. Its repr shows nothing."""

    __slots__ = ("_content", "_key", "_signature", "_value")

    def __init__(self, signature: CustomSignature, key: bytes) -> None:
        self._signature = signature
        self._key = key
        self._content = _parse_template(signature.content)
        self._value = _parse_template(signature.value)

    def __repr__(self) -> str:
        return "CustomSigner(…)"

    def lines(self, event: Event, timestamp: int, body: bytes) -> tuple[bytes, ...]:
        """The headers that it adds to an attempt: the signature, and the timestamp if it has its own."""
        signature = self._signature
        known = {"timestamp": b"%d" % timestamp, "id": event.id.encode(), "type": event.type.encode()}
        content = _fill(self._content, known | {"body": body})
        digest = hmac.digest(self._key, content, signature.algorithm)
        value = _fill(self._value, known | {"hmac": _encode(signature, digest)})
        line = b"%b: %b" % (signature.header.encode(), value.strip(b" \t"))
        if signature.timestamp_header is None:
            return (line,)
        return line, b"%b: %d" % (signature.timestamp_header.encode(), timestamp)


def custom_signer(policy: Policy) -> CustomSigner | None:
    """The signer of a receiver that has a custom signature. Raises InvalidSecret."""
    signature = policy.signature
    if signature is None:
        return None
    if signature.secret is not None:
        return CustomSigner(signature, signature.secret.encode())
    match secret_key(policy.secrets[0]) if policy.secrets else "missing":
        case SecretKey(key=key):
            return CustomSigner(signature, key)
        case str() as why:
            raise InvalidSecret(f"secrets[0]: {why}")


def _parse_template(template: str) -> Parts:
    return [(name, text.encode()) for name, text in parts_of(template)]


def _fill(parts: Parts, values: dict[str, bytes]) -> bytes:
    return b"".join([values[name] if name else text for name, text in parts])


def _encode(signature: CustomSignature, digest: bytes) -> bytes:
    match signature.encoding:
        case "hex":
            return digest.hex().encode()
        case "base64":
            return base64.b64encode(digest)
        case _:
            assert_never(signature.encoding)
