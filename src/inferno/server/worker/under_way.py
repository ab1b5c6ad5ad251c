"""The jobs that a worker has under way, by their ids."""

from __future__ import annotations

from collections.abc import Callable

from inferno.server.edge import Record, Refusal, Slot


class JobCancelled(Refusal):
    """Raised in a job's run when the job is cancelled; its stream tells so in its last event."""

    def __init__(self) -> None:
        super().__init__(409, "cancelled", "The job was cancelled.")


class JobUnderWay:
    """One job, from its request to its end.

    end             takes its id off the table; as often as you like.
    """

    def __init__(self, end: Callable[[JobUnderWay], None]) -> None:
        self._end = end
        self._is_cancelled = False
        self._slot: Slot | None = None
        self._abort: Callable[[], None] | None = None

    def run_in(self, slot: Slot, abort: Callable[[], None]) -> None:
        """Note the slot that the job runs in, and end it if it was cancelled before.

        abort       makes the engine let go of the job.
        """
        self._slot, self._abort = slot, abort
        if self._is_cancelled:
            self.cancel()

    def cancel(self) -> None:
        """End it, wherever it stands."""
        self._is_cancelled = True
        if self._slot is not None and self._abort is not None:
            self._slot.end(JobCancelled())
            self._abort()  # now, though its reader may be slow to hear of it

    def end(self) -> None:
        """Take the job off the table: another may have its id now."""
        self._end(self)


class JobsUnderWay:
    """Owns the table of jobs, which a job leaves with its HTTP request if it didn't before."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobUnderWay] = {}

    def begin(self, job_id: str, record: Record) -> JobUnderWay:
        """Return a new job; raise Refusal (409) where one of that id is under way."""
        if job_id in self._jobs:
            message = f"The job '{job_id}' is under way already; every job needs an id of its own."
            raise Refusal(409, "duplicate_job", message, param="job_id")
        job = self._jobs[job_id] = JobUnderWay(lambda job: self._forget(job_id, job))
        record.on_end(job.end)
        return job

    def cancel(self, job_id: str) -> None:
        """End that job; raise Refusal (404) where there is none."""
        if job_id not in self._jobs:
            message = f"No job '{job_id}' is under way here."
            raise Refusal(404, "job_not_found", message, param="job_id")
        self._jobs[job_id].cancel()

    def _forget(self, job_id: str, job: JobUnderWay) -> None:
        if self._jobs.get(job_id) is job:
            del self._jobs[job_id]
