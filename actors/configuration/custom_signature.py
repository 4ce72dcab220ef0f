"""The custom signature of a receiver: a header as the sender before Angarium made it, described by templates.

A template is a text with placeholders in braces. `content` is what is signed, `value` is the header.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from actors.configuration.secret_places import is_sealed

TEMPLATE_LENGTH_MAX = 256
CONTENT_PLACEHOLDERS = ("body", "timestamp", "id", "type")
VALUE_PLACEHOLDERS = ("hmac", "timestamp", "id")
CUSTOM_SECRET_LENGTH_MAX = 256

_PART = re.compile(r"\{([a-z_]{1,32})\}|([^{}]+)|([{}])")
_PRINTABLE = re.compile(r"[\t\x20-\x7e]*\Z")


class CustomSignature(Struct, frozen=True, kw_only=True, gc=False):
    """One header in the receiver's own convention. Its repr shows nothing: it holds a secret.

    - `secret`: the key, as text; without it the newest of the receiver's `secrets`.
    - `timestamp_header`: a second header, with the attempt's timestamp alone.
    """

    header: str
    algorithm: Literal["sha1", "sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    content: Annotated[str, Meta(max_length=TEMPLATE_LENGTH_MAX)] = "{body}"
    value: Annotated[str, Meta(max_length=TEMPLATE_LENGTH_MAX)] = "{hmac}"
    secret: str | None = None
    timestamp_header: str | None = None

    def __repr__(self) -> str:
        return "CustomSignature(…)"

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of the headers that it sets."""
        return (self.header,) if self.timestamp_header is None else (self.header, self.timestamp_header)


def parts_of(template: str) -> list[tuple[str, str]]:
    """The parts of a template in their order, each a placeholder's name or a text; the other one is empty."""
    return [(match[1] or "", match[2] or match[3] or "") for match in _PART.finditer(template)]


def signature_problems(signature: CustomSignature) -> Iterator[str]:
    """Yield what is wrong with its key and its templates, each problem with its member."""
    secret = signature.secret
    if secret is not None and not is_sealed(secret) and not 0 < len(secret) <= CUSTOM_SECRET_LENGTH_MAX:
        yield f"secret: must be a string of 1 to {CUSTOM_SECRET_LENGTH_MAX} characters"
    yield from _template_problems("content", signature.content, CONTENT_PLACEHOLDERS, "body")
    yield from _template_problems("value", signature.value, VALUE_PLACEHOLDERS, "hmac")


def _template_problems(member: str, template: str, known: tuple[str, ...], needed: str) -> Iterator[str]:
    placeholders = [name for name, _ in parts_of(template) if name]
    written = ", ".join(f"{{{name}}}" for name in known)
    if any(text in ("{", "}") for _, text in parts_of(template)):
        yield f"{member}: has a brace that belongs to no placeholder; the placeholders are {written}"
    for name in placeholders:
        if name not in known:
            yield f"{member}: unknown placeholder {{{name}}}; the placeholders are {written}"
            return
    if needed not in placeholders:
        yield f"{member}: must contain {{{needed}}}"
    if twice := next((name for name in known if placeholders.count(name) > 1), ""):
        yield f"{member}: {{{twice}}} may occur only once"
    if not _PRINTABLE.match(template):
        yield f"{member}: only printable ASCII characters"
