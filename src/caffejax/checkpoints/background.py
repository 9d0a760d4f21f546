"""Writing files while training goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class Background:
    """A thread for one job at a time. What goes wrong in it is raised by the next call of any method."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._job: Future[object] | None = None

    def submit(self, job: Callable[[], object]) -> None:
        """Start a job once the one before is done."""
        self.wait()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="caffejax-save")
        self._job = self._pool.submit(job)

    def check(self) -> None:
        """Raise what went wrong in a job that has ended. Never wait."""
        if self._job is not None and self._job.done():
            self.wait()

    def settle(self) -> None:
        """Wait until the job has ended; raise nothing yet."""
        if self._job is not None:
            wait([self._job])

    def wait(self) -> None:
        """Wait for the job, and raise what went wrong in it."""
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def close(self) -> None:
        """Wait for the job and end the thread."""
        try:
            self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None
