"""Names the commands by which an operator lets a receiver continue."""

_COMMANDS = {
    "resume": "; to continue, run angarium receiver resume {}",
    "put": "; to fix it, run angarium receiver edit {}",
}


def remedy_text(remedy: str | None, receiver: str) -> str:
    """The end of a sentence that says why nothing moves; empty if the receiver continues by itself."""
    return _COMMANDS.get(remedy or "", "").format(receiver)
