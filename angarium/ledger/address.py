"""Parses the address of a ledger. It contains no password, since process lists and logs show it."""

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from angarium.ledger.store import BadAddress

FILE_SCHEME = "sqlite:///"
DATABASE_SCHEMES = ("postgresql", "postgres")


class Database(Struct, frozen=True):
    """A database of PostgreSQL, by its address."""

    url: str

    @property
    def shown(self) -> str:
        """The address for people, without its parameters."""
        return self.url.partition("?")[0]


def locate(location: str) -> Path | Database:
    """Parse the address. Raises BadAddress."""
    if location.partition("://")[0] in DATABASE_SCHEMES:
        return _database(location)
    path = location.removeprefix(FILE_SCHEME)
    if path == location or not path:
        raise BadAddress(
            f"{_shown(location)!r} is not a ledger: write sqlite:///a/file, sqlite:////var/lib/ledger.db, or "
            "postgresql://user@host/database"
        )
    return Path(path)


def _database(location: str) -> Database:
    try:
        parts = urlsplit(location)
        password, names = parts.password, {name for name, _ in parse_qsl(parts.query)}
    except ValueError:
        raise BadAddress(
            f"{_shown(location)!r} is not an address of PostgreSQL: write postgresql://user@host/database"
        ) from None
    if password is not None or "password" in names:
        raise BadAddress(
            "the address of the ledger contains a password, which others may see in process lists: "
            "put it into PGPASSWORD or ~/.pgpass, and write postgresql://user@host/database"
        )
    return Database(location)


def _shown(location: str) -> str:
    """The address for people; only its beginning if it may contain a password."""
    return f"{location.partition(':')[0]}:…" if "@" in location else location
