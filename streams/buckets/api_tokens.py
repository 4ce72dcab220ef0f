"""The tokens of the HTTP API: a bucket that is followed, so that a revocation takes effect within a second.

Only the hash of a token's secret is stored. The time of a token's last use has a key of its own: the process
that writes it needs no permission to change tokens, and cannot bring a revoked one back.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct

from streams.buckets.follower import Follower, is_removal
from streams.installation.topology import Names
from streams.nats.answers import Answer, StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import EXPECTED, KV_OPERATION, ROLLUP

Scope = Literal["publish", "read", "manage", "operate"]

ALL_TENANTS = "*"
READ_EVERY_S = 0.4
"""Interval of reads: a revocation takes effect within a second even if no hint about it arrives."""

log = logging.getLogger(__name__)


class Token(Struct, frozen=True, kw_only=True):
    """A token as it is stored. Its repr shows nothing, since logs may contain it.

    - `hash`: SHA-256 of its secret.
    - `rate`: events per second that it may publish.
    - `created_by`: who made it; empty in tokens of older versions.
    """

    tenant: str
    scopes: tuple[Scope, ...]
    hash: str
    created_at: datetime
    expires_at: datetime | None = None
    rate: float | None = None
    note: str = ""
    created_by: str = ""

    def __repr__(self) -> str:
        return f"Token(tenant={self.tenant!r}, …)"

    def sees(self, tenant: str) -> bool:
        """True if the token is for that tenant."""
        return self.tenant in (tenant, ALL_TENANTS)


class TokenUse(Struct, frozen=True):
    """The time of the last use."""

    at: datetime


class TokenStore:
    """The tokens of an installation. Without `start` nothing is followed; awaited methods still work."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names
        self._known: dict[str, Token] = {}
        self._unseen: set[str] = set()
        self._follower = Follower(
            js, names.tokens, names.token("*"), self._follow, every_s=READ_EVERY_S, asks_leader=True,
            begins_again=self._begin_again, is_complete=self._drop_unseen,
        )  # fmt: skip

    async def start(self) -> None:
        """Return when all existing tokens have been read."""
        await self._follower.start()

    async def stop(self) -> None:
        await self._follower.stop()

    @property
    def read_at(self) -> float:
        """The time, by the event loop's clock, up to which every revocation is known."""
        return self._follower.read_at

    def get(self, token: str) -> Token | None:
        """The token with that id unless it is revoked; it may have expired."""
        return self._known.get(token)

    @property
    def known(self) -> Mapping[str, Token]:
        """The tokens that are not revoked, as far as that is known, by their ids."""
        return self._known

    async def create(self, token: str, new: Token) -> Answer:
        """Store a token under an unused id."""
        return await self._js.publish(self._names.token(token), msgspec.json.encode(new), {EXPECTED: "0"})

    async def revoke(self, token: str) -> Answer:
        """Remove a token, and the record of its use."""
        gone = {ROLLUP: "sub", KV_OPERATION: "PURGE"}
        answer = await self._js.publish(self._names.token(token), b"", gone)
        await self._js.publish(self._names.token_use(token), b"", gone)
        return answer

    async def find(self, token: str) -> Token | None:
        """Ask the bucket's leader for a token. Raises `Unavailable` and `ApiError`."""
        message = await self._js.last_message(self._names.tokens, self._names.token(token))
        return None if message is None else _token(message)

    async def all(self) -> dict[str, Token]:
        """All tokens by their ids. Raises `Unavailable`."""
        return self._tokens(await self._read(self._names.token("*")))

    async def some(self, tokens: Sequence[str]) -> dict[str, tuple[Token, datetime | None]]:
        """The tokens with these ids that exist, each with the time of its last use. Raises `Unavailable`."""
        keys = [key(each) for each in tokens for key in (self._names.token, self._names.token_use)]
        messages = (await self._js.last_of(self._names.tokens, keys)).messages if keys else []
        wanted = {*map(self._names.token, tokens)}
        found = self._tokens([each for each in messages if each.subject in wanted])
        uses = self._uses([each for each in messages if each.subject not in wanted])
        return {each: (found[each], uses.get(each)) for each in tokens if each in found}

    def _tokens(self, messages: Sequence[StoredMessage]) -> dict[str, Token]:
        return {
            self._names.id_of_token(message.subject): token
            for message in messages
            if (token := _token(message)) is not None
        }

    async def note_use(self, token: str) -> Answer:
        """Record that a token is used now."""
        use = msgspec.json.encode(TokenUse(datetime.now(UTC)))
        return await self._js.publish(self._names.token_use(token), use, {ROLLUP: "sub"})

    async def last_uses(self) -> dict[str, datetime]:
        """The last known use of each token. Raises `Unavailable`."""
        return self._uses(await self._read(self._names.token_use("*")))

    def _uses(self, messages: Sequence[StoredMessage]) -> dict[str, datetime]:
        uses: dict[str, datetime] = {}
        for message in messages:
            token = self._names.id_of_token(message.subject)
            if not is_removal(message):
                try:
                    uses[token] = msgspec.json.decode(message.data, type=TokenUse).at
                except msgspec.DecodeError:
                    log.warning("token.use_unreadable", extra={"id": token})
        return uses

    async def _read(self, subject: str) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        after, pending = 0, 1
        while pending:
            page = await self._js.read(self._names.tokens, subject, after + 1)
            found += page.messages
            after, pending = page.messages[-1].position if page.messages else after, page.pending
        return found

    def _follow(self, message: StoredMessage) -> None:
        name = self._names.id_of_token(message.subject)
        token = _token(message)
        self._unseen.discard(name)
        if token is None:
            self._known.pop(name, None)
        else:
            self._known[name] = token

    def _begin_again(self) -> None:
        self._unseen = set(self._known)

    def _drop_unseen(self) -> None:
        """Forget the tokens that are no longer in the bucket."""
        for name in self._unseen:
            self._known.pop(name, None)
        self._unseen = set()


def _token(message: StoredMessage) -> Token | None:
    """The token in a message; None if it cannot be read."""
    if is_removal(message):
        return None
    try:
        return msgspec.json.decode(message.data, type=Token)
    except msgspec.DecodeError as error:
        log.warning("token.unreadable", extra={"key": message.subject[:160], "why": str(error)})
        return None
