"""The key file of an installation: a key a line, the one that seals first.

A line is `<key id> <base64 of 32 bytes>`; empty lines, and lines that begin with `#`, mean nothing. Errors
say which line is wrong, and nothing of what it contains.
"""

import base64
import binascii
import os
import secrets
import stat

from streams.sealing.keys import KEY_BYTES, Keys, is_key_id

KEYS_MAX = 8
FILE_BYTES_MAX = 16 << 10


def read_key_file(path: str) -> Keys:
    """Read the keys. Raises OSError, and ValueError with the reason in words.

    As ssh does with a private key, it refuses a file of this user that others can read. A file of another
    user is taken as it is: Kubernetes and Docker mount secrets that root owns.
    """
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) & 0o077:
            raise ValueError(f"others can use it (mode {stat.S_IMODE(found.st_mode):04o}); chmod 600 it")
        text = file.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        raise ValueError(f"is larger than {FILE_BYTES_MAX} bytes; this is another file")
    try:
        return Keys(parsed_keys(text.decode()))
    except UnicodeDecodeError:
        raise ValueError("is not text; this is another file") from None


def parsed_keys(text: str) -> dict[str, bytes]:
    """The keys in the text of a key file, in their order. Raises ValueError."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match line.split():
            case []:
                continue
            case [first, *_] if first.startswith("#"):
                continue
            case [name, encoded] if is_key_id(name):
                if name in keys:
                    raise ValueError(f"line {number}: there are two keys with this id; leave one out")
                keys[name] = _key(number, encoded)
            case _:
                raise ValueError(f"line {number}: must be an id (1 to 32 of A-Z a-z 0-9 _ -) and a key")
    if not keys:
        raise ValueError("has no key; angarium key new makes one")
    if len(keys) > KEYS_MAX:
        raise ValueError(f"has {len(keys)} keys, at most {KEYS_MAX}; leave out those that seal nothing more")
    return keys


def new_key_line(name: str) -> str:
    """A line for a key file, with a new key."""
    return f"{name} {base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"


def _key(number: int, encoded: str) -> bytes:
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"line {number}: the key is not base64; copy it again") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"line {number}: the key has {len(key)} bytes, not {KEY_BYTES}; copy it again")
    return key
