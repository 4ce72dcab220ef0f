"""Says how an operator lets a receiver continue."""

_REMEDIES = {
    "key": "; it continues once its node has the key",
    "resume": "; to continue, run angarium receiver resume {}",
    "put": "; to fix it, run angarium receiver edit {}",
}


def remedy_text(remedy: str | None, receiver: str) -> str:
    """The end of a sentence that says why nothing moves; empty if the receiver continues by itself."""
    return _REMEDIES.get(remedy or "", "").format(receiver)
