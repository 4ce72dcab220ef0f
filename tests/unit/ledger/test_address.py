"""The address of a ledger: a file or a database, without a password, which is never shown."""

from pathlib import Path

import pytest

from angarium.ledger.address import Database, locate
from angarium.ledger.store import LedgerError


def test_a_file_and_a_database_are_told_apart() -> None:
    assert locate("sqlite:///a/b.db") == Path("a/b.db")
    assert locate("sqlite:////var/b.db") == Path("/var/b.db")
    assert locate("postgresql://ann@db.example:5433/events") == Database(
        "postgresql://ann@db.example:5433/events"
    )
    assert locate("postgres:///events?host=/run") == Database("postgres:///events?host=/run")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:h1dden@db/events",
        "postgresql://db/events?user=ann&password=h1dden",
        "postgres://ann:h1dden@db",
        "postgresql://ann:h1dden@[db/events",
        "mysql://ann:h1dden@db/events",
        "postgresql:/ann:h1dden@db/events",
        "sqlite://ann:h1dden@db",
    ],
)
def test_a_password_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(LedgerError) as refused:
        locate(address)
    assert "h1dden" not in str(refused.value)


def test_a_user_who_writes_a_password_is_told_where_it_goes() -> None:
    with pytest.raises(LedgerError, match="PGPASSWORD"):
        locate("postgresql://ann:h1dden@db/events")


def test_parameters_are_not_shown() -> None:
    assert Database("postgresql://ann@db/events?sslmode=require").shown == "postgresql://ann@db/events"
