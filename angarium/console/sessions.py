"""The sessions of browsers that have signed in with a token, in the memory of one process.

A browser holds a random text, and never the token. The store keeps the hash of that text, so what it holds
opens nothing, and the time of a look-up says nothing about the text. A session ends when it has been
idle too long, is too old, its token is revoked, changed or expired, or its browser signs out.
"""

import asyncio
import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

from angarium.api.background.tail_streams import TailStream
from streams.buckets.api_tokens import Scope, Token

IDLE_MAX_S = 1800.0
"""Time after the last use at which a session ends; a page that refreshes itself does not use it."""
LIFE_MAX_S = 8 * 3600.0
SESSIONS_MAX = 2048
TENANT_SESSIONS_MAX = 256
TOKEN_SESSIONS_MAX = 64
NOTICES_MAX = 8
SIGNED_OUT = "the session is over; sign in again"


class ConsoleSession:
    """A browser that has signed in.

    - `csrf`: the text that each of its forms has to contain.
    - `notices`: what its next page says about what was done.
    - `streams`: its live streams, which end with it; `opening` is how many are about to begin.
    """

    __slots__ = ("began_at", "csrf", "key", "notices", "opening", "streams", "token", "token_id", "used_at")

    def __init__(self, key: str, token_id: str, token: Token, now: float) -> None:
        self.key = key
        self.token_id = token_id
        self.token = token
        self.csrf = secrets.token_urlsafe(32)
        self.began_at = self.used_at = now
        self.notices: list[str] = []
        self.streams: set[TailStream] = set()
        self.opening = 0

    def may(self, *scopes: Scope) -> bool:
        """True if its token has one of these scopes."""
        return not {*scopes}.isdisjoint(self.token.scopes)

    def notice(self, text: str) -> None:
        """Notes what its next page says."""
        self.notices = [*self.notices, text][-NOTICES_MAX:]

    def end_streams(self) -> None:
        """End all live streams of the session."""
        for each in self.streams:
            each.end(SIGNED_OUT)


class ConsoleSessions:
    """The sessions of one process.

    `valid` returns the token with an id, if it is valid now; while not `is_known`, it knows none.
    """

    def __init__(self, valid: Callable[[str], Token | None], is_known: Callable[[], bool]) -> None:
        self._valid = valid
        self._is_known = is_known
        self._sessions: OrderedDict[str, ConsoleSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ConsoleSession]:
        """The sessions, those first that began first."""
        return iter(self._sessions.values())

    def open(self, token_id: str, token: Token) -> tuple[str, ConsoleSession]:
        """A new session, and the text for its browser.

        With too many of a token or of a tenant, those that began first end. With too many in all, one of the
        tenant that has most of them ends, so that no tenant ends the sessions of another.
        """
        text = secrets.token_urlsafe(32)
        session = ConsoleSession(_key(text), token_id, token, _now())
        self._sessions[session.key] = session
        self._close_first([each for each in self if each.token_id == token_id], TOKEN_SESSIONS_MAX)
        self._close_first([each for each in self if each.token.tenant == token.tenant], TENANT_SESSIONS_MAX)
        if len(self._sessions) > SESSIONS_MAX:
            ((most, count),) = Counter(each.token.tenant for each in self).most_common(1)
            self._close_first([each for each in self if each.token.tenant == most], count - 1)
        return text, session

    def _close_first(self, began: list[ConsoleSession], kept_max: int) -> None:
        for each in began[: max(0, len(began) - kept_max)]:
            self.close(each)

    def find(self, text: str, *, is_use: bool = True) -> ConsoleSession | None:
        """The session of a browser that sent this text; None if there is none, or it is over."""
        session = self._sessions.get(_key(text))
        if session is None or not self.lasts(session):
            return None
        if is_use:
            session.used_at = _now()
        return session

    def lasts(self, session: ConsoleSession) -> bool:
        """True if the session goes on; otherwise it ends now.

        While it is not known which tokens are valid, it does not go on, and does not end either.
        """
        now = _now()
        is_ours = self._sessions.get(session.key) is session
        is_young = now - session.used_at < IDLE_MAX_S and now - session.began_at < LIFE_MAX_S
        if is_ours and is_young:
            if self._valid(session.token_id) == session.token:
                return True
            if not self._is_known():
                return False
        self.close(session)
        return False

    def count_of_token(self, token_id: str) -> int:
        """The number of sessions that began with the token."""
        return sum(each.token_id == token_id for each in self._sessions.values())

    def close(self, session: ConsoleSession) -> None:
        """End a session, and its live streams."""
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
        session.end_streams()


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _now() -> float:
    return asyncio.get_running_loop().time()
