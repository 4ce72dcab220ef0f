"""Removes a receiver's credentials from texts: an answer may repeat what the request said."""

from collections.abc import Collection
from functools import cached_property, lru_cache

from actors.configuration.policy import Policy

REDACTED = "[redacted]"
CREDENTIAL_MIN = 8
"""Characters of the shortest word that is looked for in a text: shorter ones would be found by chance."""

FEW_CREDENTIALS = 64
"""Number of words up to which they are looked for one by one, which is quicker than splitting the text."""
KEPT_MAX = 64
"""Configurations whose credentials are cached: finding 16 KiB of them takes a millisecond, and every failed
attempt needs them. The cache takes a megabyte at most."""


class Credentials:
    """Words that no text may show, not even the beginning of one: a body may be cut within a credential.

    Words and text are compared in pieces of CREDENTIAL_MIN characters. So the number of steps grows with
    their length alone, not their content: a tenant that writes both must not be able to block the node.
    """

    def __init__(self, words: Collection[str]) -> None:
        self._words = words
        self._first = {word[:CREDENTIAL_MIN] for word in words}

    @cached_property
    def _any(self) -> set[str]:
        return set[str]().union(*map(_pieces, self._words))

    def hide(self, text: str) -> str:
        """The text with each of these words replaced, even if pieces of them overlap."""
        if len(self._first) <= FEW_CREDENTIALS and not any(map(text.__contains__, self._first)):
            return text
        pieces = _pieces(text)
        if self._first.isdisjoint(pieces):
            return text
        parts = []
        inside, end = False, 0
        for at, piece in enumerate(pieces):
            inside = piece in self._first or (inside and piece in self._any)
            if inside:
                if at >= end:
                    parts += [text[end:at], REDACTED]
                end = at + CREDENTIAL_MIN
        return "".join([*parts, text[end:]])


def credentials_of(policy: Policy) -> Credentials:
    """The words of the receiver's own headers: an answer may repeat a part of a value.

    The path of its URL and the values of its query are among them, since a hook's URL is a secret by itself.
    """
    return _credentials((*policy.headers.values(),), policy.url)


@lru_cache(maxsize=KEPT_MAX)
def _credentials(values: tuple[str, ...], url: str) -> Credentials:
    words = {word for value in values for word in value.split()}
    address, _, query = url.partition("?")
    words |= {address.partition("://")[2].partition("/")[2], *query.replace("=", "&").split("&")}
    return Credentials({word for word in words if len(word) >= CREDENTIAL_MIN})


def _pieces(text: str) -> list[str]:
    """All pieces of the text with CREDENTIAL_MIN characters, each one character after the last."""
    return [text[at : at + CREDENTIAL_MIN] for at in range(len(text) - CREDENTIAL_MIN + 1)]
