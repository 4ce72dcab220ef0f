"""Carries out requests to erase, as the eraser of a node does."""

from streams.erasing.erasures import Erasures, finished


async def carry_out(erasures: Erasures) -> list[str]:
    """Finish all pending requests; returns their events."""
    done: list[str] = []
    async for request, revision in erasures.pending():
        await erasures.store_progress(finished(request, 1.0, 1), revision)
        done.append(request.event)
    return done
