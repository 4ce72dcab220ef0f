"""The depth of a JSON text, counted before a decoder sees it, so that every node has the same limit."""

import re
from itertools import accumulate

BODY_LEVELS_MAX = 128
"""Depth up to which a body counts as JSON. The decoder's own limit depends on the depth of its caller."""
_LEVELS = bytes(1 if byte in b"[{" else 255 if byte in b"]}" else byte for byte in range(256))
"""Brackets as what they add to the depth, as a signed byte."""
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_STRINGS = re.compile(rb'"[^"]*"?')
"""Strings, also one without an end."""
_COUNTED_AT_ONCE = 4096
"""Brackets of which each is counted by itself, where they are deep."""


def is_deep(body: bytes) -> bool:
    """True if it is nested deeper than BODY_LEVELS_MAX."""
    if body.count(b"[") + body.count(b"{") <= BODY_LEVELS_MAX:
        return False
    brackets, depth, begin = _brackets(body), 0, 0
    while begin < len(brackets):
        if depth <= BODY_LEVELS_MAX // 2:
            # Together these lead beyond the limit only if each of them opens one more level.
            part = brackets[begin : begin + BODY_LEVELS_MAX + 1 - depth]
            depth = deepest = depth + _levels_in(part)
        else:
            part = brackets[begin : begin + _COUNTED_AT_ONCE]
            deepest = max(accumulate(memoryview(part).cast("b"), initial=depth))
            depth += _levels_in(part)
        if deepest > BODY_LEVELS_MAX:
            return True
        begin += len(part)
    return False


def _levels_in(brackets: bytes) -> int:
    """The levels that are opened in them, less those that are closed."""
    return 2 * brackets.count(1) - len(brackets)


def _brackets(body: bytes) -> bytes:
    """The brackets of a JSON text outside its strings, as what each adds to the depth."""
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    # Most strings have no bracket, so two quotation marks are left of them.
    brackets = body.translate(_LEVELS, _OTHERS).replace(b'""', b"")
    return _STRINGS.sub(b"", brackets) if b'"' in brackets else brackets
