"""Leases of the shares: which process writes which, by the clock of the database.

Each writer renews its lease every few seconds. If it does not for `LEASE_LAPSES_MS`, the lease has lapsed:
its connection is terminated, so that no transaction of it keeps a row locked, and its shares are free. Safety
does not depend on that. Each transaction of a writer moves the positions of its shares, and only if position
and epoch are still those that it knows. So a writer that lost a share stores nothing more of it.
"""

from angarium.ledger.batch import HeldShare
from angarium.ledger.postgres.session import Session
from angarium.ledger.postgres.share_plan import exchange
from angarium.ledger.postgres.tables import SHARE_COUNT
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import ReadPosition

LEASE_LAPSES_MS = 10_000
APPLICATION = "angarium ledger"

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_SHARES = f"""
INSERT INTO positions (stream, created, position, stored_at, seen_at, share)
SELECT ?, '', 0, 0, 0, generate_series(0, {SHARE_COUNT - 1}) ON CONFLICT DO NOTHING
"""
_LIVES = f"""
INSERT INTO writers VALUES (?, {_NOW} + {LEASE_LAPSES_MS})
ON CONFLICT (holder) DO UPDATE SET until = excluded.until
"""
_LAPSED = f"DELETE FROM writers WHERE until < {_NOW} RETURNING holder"
ENDED_CONNECTIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = ? AND usename = current_user
"""
_FREE = """
SELECT p.share FROM positions p LEFT JOIN writers w ON w.holder = p.holder
WHERE p.stream = ? AND w.holder IS NULL
"""
_HELD = """
SELECT share, created, position, stored_at, epoch, block FROM positions WHERE stream = ? AND holder = ?
ORDER BY share
"""
_GIVEN_UP = "UPDATE positions SET holder = NULL WHERE stream = ? AND holder = ? AND share = ANY(?)"
_TAKEN = """
UPDATE positions SET holder = ?2, epoch = epoch + 1 WHERE stream = ?1 AND share IN (
    SELECT p.share FROM positions p
    WHERE p.stream = ?1 AND p.share = ANY(?3)
        AND NOT EXISTS (SELECT 1 FROM writers w WHERE w.holder = p.holder)
    FOR UPDATE SKIP LOCKED)
"""


class Leases:
    """The lease of one writer, under its unique name."""

    def __init__(self, session: Session, holder: str) -> None:
        self._session = session
        self.holder = holder

    async def renew(self, stream: str) -> tuple[dict[int, HeldShare], int]:
        """Renew the lease, and give up or take over shares.

        Returns the held shares, and the last block of any of them."""
        session = self._session
        async with session.transaction():
            await session.execute(_LIVES, self.holder)
            lapsed = [each[0] for each in await session.rows(_LAPSED)]
            writers = (await session.rows("SELECT count(*) FROM writers"))[0][0]
            free = [share for (share,) in await session.rows(_FREE, stream)]
            held = [row[0] for row in await session.rows(_HELD, stream, self.holder)]
            if not free and not held:
                await session.execute(_SHARES, stream)
                free = [share for (share,) in await session.rows(_FREE, stream)]
            changes = exchange(held, free, writers, SHARE_COUNT)
            if changes.given_up:
                await session.execute(_GIVEN_UP, stream, self.holder, changes.given_up)
            if changes.taken:
                await session.execute(_TAKEN, stream, self.holder, changes.taken)
            rows = await session.rows(_HELD, stream, self.holder)
        for each in lapsed:
            await session.rows(ENDED_CONNECTIONS, application(each))
        shares = {
            share: HeldShare(
                ReadPosition(created=created, mark=Mark(position=position, stored_at=stored_at)), epoch
            )
            for share, created, position, stored_at, epoch, _ in rows
        }
        return shares, max((row[5] for row in rows), default=0)

    async def end(self) -> None:
        """Release the shares at once."""
        async with self._session.transaction():
            await self._session.execute("UPDATE positions SET holder = NULL WHERE holder = ?", self.holder)
            await self._session.execute("DELETE FROM writers WHERE holder = ?", self.holder)


def application(holder: str) -> str:
    """The name of a writer's connections."""
    return f"{APPLICATION} {holder}"
