"""Publishing with an expected last sequence, and the codes of refusals."""

WRONG_LAST_SEQUENCE = 10071
STORE_FULL = 10077
TOO_LARGE = 10054

LAST = "Nats-Expected-Last-Subject-Sequence"
LAST_OF = "Nats-Expected-Last-Subject-Sequence-Subject"
MESSAGE_ID = "Nats-Msg-Id"


def expecting(sequence: int, subject: str | None = None) -> dict[str, str]:
    """The headers that expect the sequence to be the last, of the stream or of a subject."""
    return {LAST: str(sequence)} | ({LAST_OF: subject} if subject else {})
