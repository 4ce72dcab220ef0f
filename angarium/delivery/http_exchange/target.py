"""The target of a receiver: its URL, parsed once into the address to connect to and the path to request.

Two parsers that disagree about a URL let an attacker evade a guard: one sees a public name, the other
connects to an address. So a URL with two readings (RFC 3986 and WHATWG) is refused here, with the spelling to
use instead; guard, `Host` header, TLS name and connection all use this one result.
"""

import re
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, urlsplit

import idna
from msgspec import Struct

from actors.errors import BadInput

URL_LENGTH_MAX = 4096
DEFAULT_PORTS = {"http": 80, "https": 443}

_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")
_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\Z")
# "Ends in a number" (WHATWG URL): some resolvers read such a name as an IPv4 address, octal, hex or short.
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\Z")
_PATH_SAFE = "/?:@!$&'()*+,;=-._~%"


class InvalidTarget(BadInput):
    """A URL that cannot be delivered to; the text is one sentence that names the field and the remedy."""


class Target(Struct, frozen=True):
    """A receiver's URL, normalised. `host` is a lower-case ASCII name without trailing dot, or an address.

    `path` is the request target of HTTP/1.1, query included. The repr leaves it out: hook URLs hold secrets.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        """Scheme, host and port, for messages."""
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """The value of the `Host` header, with the port only if it is not the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __repr__(self) -> str:
        return f"Target({self.origin}/…)"


def parse_target(url: str) -> Target:
    """Parse a URL, or raise InvalidTarget. A fragment is dropped, since it is never sent."""
    if len(url) > URL_LENGTH_MAX:
        raise InvalidTarget(f"url: longer than {URL_LENGTH_MAX} characters; shorten it")
    if _AMBIGUOUS.search(url):
        raise InvalidTarget("url: spaces, control characters and backslashes must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # The message of urllib is not used: it repeats user, password and the text in place of the port.
        raise InvalidTarget("url: not well formed; write it as https://host[:port]/path") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise InvalidTarget("url: must begin with https:// (or http:// if the operator allows it)")
    if "@" in parts.netloc:
        raise InvalidTarget("url: must not contain a user or password; put credentials into headers")
    if port == 0:
        raise InvalidTarget("url: port 0 cannot be used; give another one or leave it out")
    query = f"?{parts.query}" if parts.query else ""
    return Target(
        scheme=parts.scheme,
        host=_bracketed(parts.hostname) if parts.netloc.startswith("[") else _host(parts.hostname),
        port=port or DEFAULT_PORTS[parts.scheme],
        path=quote((parts.path or "/") + query, safe=_PATH_SAFE),
    )


def _bracketed(text: str | None) -> str:
    """An IPv6 address, in its one canonical spelling."""
    if text is None or "%" in text:
        raise InvalidTarget("url: an IPv6 address must not have a zone id")
    try:
        address = IPv6Address(text)
    except ValueError:
        raise InvalidTarget("url: only an IPv6 address may be in brackets") from None
    if address.ipv4_mapped is None:
        return str(address)
    # Python 3.13 writes these with dots, older ones do not; verdicts and connections are kept by host.
    number = int(address.ipv4_mapped)
    return f"::ffff:{number >> 16:x}:{number & 0xFFFF:x}"


def _host(text: str | None) -> str:
    """A name or an IPv4 address; a text that only some resolvers read as an address is refused."""
    if not text:
        raise InvalidTarget("url: has no host; write it as https://host/path")
    host = (text if text.isascii() else _idna(text)).removesuffix(".")
    if _ENDS_IN_NUMBER.match(host):
        try:
            return str(IPv4Address(host))
        except ValueError:
            raise InvalidTarget(
                "url: an IPv4 address must be four decimal numbers without leading zeros, such as 192.0.2.10"
            ) from None
    if not _NAME.match(host):
        raise InvalidTarget(
            "url: the host must be labels of A-Z a-z 0-9 _ - (63 characters at most) joined by dots"
        )
    return host


def _idna(text: str) -> str:
    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except idna.IDNAError:
        raise InvalidTarget("url: the host is not a valid international name; write it in ASCII") from None
