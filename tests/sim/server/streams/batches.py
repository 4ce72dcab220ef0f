"""Atomic batches (ADR-50) on the server in memory: staged by id, judged and stored at the commit."""

from typing import TYPE_CHECKING, Any

from tests.sim.server import refusals
from tests.sim.server.refusals import Refusal
from tests.sim.server.streams.drafts import LAST_ID, Draft, Staged
from tests.sim.server.streams.store import Headers

if TYPE_CHECKING:
    from tests.sim.server.streams.stream import Stream

IDLE_S = 10.0
OPEN_MAX = 50
MESSAGES_MAX = 1000
ID_MAX = 64


class Batch:
    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.touched = 0.0


class Batches:
    """The open batches of one stream. They are not on disk: a restart forgets them."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._open: dict[str, Batch] = {}

    def publish(self, draft: Draft) -> dict[str, Any] | None:
        """Take one message of a batch; None is the empty answer to one that is staged."""
        headers = draft[2] or {}
        answer = self._take(headers["Nats-Batch-Id"], draft, headers)
        return self._stream.refused(answer) if isinstance(answer, Refusal) else answer

    def _take(self, name: str, draft: Draft, headers: Headers) -> Refusal | dict[str, Any] | None:
        refusal = self._malformed(name, headers) or self._admit(name, headers)
        if refusal:
            self._open.pop(name, None)
            return refusal
        batch = self._open[name]
        batch.touched = self._stream.timing.now()
        commit = headers.get("Nats-Batch-Commit")
        if commit == "eob":
            subject, data, last = batch.drafts.pop()
            draft = (subject, data, {**(last or {}), "Nats-Batch-Commit": "1"})
        batch.drafts.append(draft)
        if commit is None:
            return None
        del self._open[name]
        return self._commit(name, batch.drafts)

    def _malformed(self, name: str, headers: Headers) -> Refusal | None:
        if not self._stream.config.get("allow_atomic"):
            return refusals.ATOMIC_DISABLED
        if not 1 <= len(name) <= ID_MAX:
            return refusals.ATOMIC_ID_INVALID
        if not headers.get("Nats-Batch-Sequence", "").isdecimal():
            return refusals.ATOMIC_NO_SEQUENCE
        return None

    def _admit(self, name: str, headers: Headers) -> Refusal | None:
        """The message has to be the batch's next one."""
        self._drop_idle()
        number, commit = int(headers["Nats-Batch-Sequence"]), headers.get("Nats-Batch-Commit", "1")
        if number > MESSAGES_MAX:
            return refusals.ATOMIC_TOO_LARGE
        batch = self._open.get(name)
        if batch is None and (number != 1 or commit == "eob"):
            return refusals.ATOMIC_INCOMPLETE
        if commit not in ("1", "eob"):
            return refusals.ATOMIC_COMMIT_INVALID
        if batch is not None and number != len(batch.drafts) + 1:
            return refusals.ATOMIC_INCOMPLETE
        if batch is None:
            if len(self._open) >= OPEN_MAX:
                return refusals.ATOMIC_TOO_MANY
            self._open[name] = Batch()
        return None

    def _drop_idle(self) -> None:
        oldest = self._stream.timing.now() - IDLE_S
        for name in [name for name, batch in self._open.items() if batch.touched < oldest]:
            del self._open[name]

    def _commit(self, name: str, drafts: list[Draft]) -> Refusal | dict[str, Any]:
        """Store all of them or none."""
        staged = Staged()
        for draft in drafts:
            if LAST_ID in (draft[2] or {}):
                return refusals.ATOMIC_HEADER
            if refusal := self._stream.refusal(draft, staged):
                return refusal
            staged.add(draft)
        sequence = max(self._stream.keep(draft) for draft in drafts)
        return {"stream": self._stream.name, "seq": sequence, "batch": name, "count": len(drafts)}
