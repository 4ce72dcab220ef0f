"""Secrets that must not be shown, and the search for them in all output.

It is looked for in what every test prints and logs (`tests/conftest.py`), and in what processes say: logs of
nodes, output of commands, answers to control requests (`tests/e2e`), where all receivers have such values.
"""

import re

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="
CREDENTIAL = "Bearer hush-hush"

_KEY = re.compile(r"(?:whsec|whs512|whsk|psk)_[A-Za-z0-9+/]{32,}")
_OURS = ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo", "hush-hush", "T0KEN")


def secrets_in(text: str) -> list[str]:
    """The secrets that a text gives away: the values above, and what looks like a key to sign with."""
    return [*_KEY.findall(text), *(secret for secret in _OURS if secret in text)]
