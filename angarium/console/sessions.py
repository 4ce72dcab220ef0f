"""The sessions of browsers that have signed in with a token, in the memory of one process.

A browser holds a random text, and never the token. The store keeps the hash of that text, so what it holds
opens nothing, and the time of a look-up says nothing about the text. A session ends when it has been
idle too long, is too old, its token is revoked, changed or expired, or its browser signs out.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable

from angarium.api.background.tail_streams import TailStream
from streams.buckets.api_tokens import Scope, Token

IDLE_MAX_S = 1800.0
"""Time after the last use at which a session ends; a page that refreshes itself does not use it."""
LIFE_MAX_S = 8 * 3600.0
SESSIONS_MAX = 2048
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

    def open(self, token_id: str, token: Token) -> tuple[str, ConsoleSession]:
        """A new session, and the text for its browser. With too many, those that began first end."""
        text = secrets.token_urlsafe(32)
        session = ConsoleSession(_key(text), token_id, token, _now())
        self._sessions[session.key] = session
        of_token = [each for each in self._sessions.values() if each.token_id == token_id]
        for each in of_token[: max(0, len(of_token) - TOKEN_SESSIONS_MAX)]:
            self.close(each)
        while len(self._sessions) > SESSIONS_MAX:
            self.close(next(iter(self._sessions.values())))
        return text, session

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
