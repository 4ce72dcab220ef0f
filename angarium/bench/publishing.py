"""What benches publish: bodies that tell when they were published; and whether they were stored."""

import time

import click

from streams.answers import Answer, Stored


def body(size: int) -> bytes:
    """A body of that size in bytes which begins with the time, as the sink reads it."""
    return f"{time.time():.6f}".encode().ljust(size, b" ")


def stored(answer: Answer) -> int:
    """The position of a message. Raises click.ClickException where it was not accepted."""
    if not isinstance(answer, Stored):
        raise click.ClickException(f"NATS did not accept a message: {answer}")
    return answer.sequence
