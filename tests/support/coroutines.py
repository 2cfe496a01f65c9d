"""Run coroutines in tests that are not coroutines."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_in_thread(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end in a thread of its own and return its result.

    Playwright's synchronous API keeps an event loop running in the main thread, where `asyncio.run`
    then fails.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks and threads run until a condition holds; a test limits the time."""
    while not condition():
        await asyncio.sleep(0.001)
