"""A cancelled task has ended when the caller continues, and how it ended is not the caller's concern."""

import asyncio

from streams.tasks import cancel_and_wait


async def test_a_cancelled_task_has_ended_when_the_caller_continues() -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            steps.append("begun")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("ended")
            raise ValueError("as it ended")

    tasks = [asyncio.ensure_future(work()) for _ in range(2)]
    await asyncio.sleep(0)
    await cancel_and_wait(*tasks)
    assert steps == ["begun", "begun", "ended", "ended"]
    assert all(isinstance(task.exception(), ValueError) for task in tasks)


async def test_a_task_that_has_ended_or_never_began_is_not_waited_for() -> None:
    task = asyncio.ensure_future(asyncio.sleep(0, "done"))
    assert await task == "done"
    await cancel_and_wait(task, None)
    await cancel_and_wait()
