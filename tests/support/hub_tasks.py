"""Hub jobs in their own processes, as the page and the commands run them."""

from playground.hub.jobs import create_hub_queue, submit_task


def start_hub_task(task, on_progress=lambda message: None):
    """Start a job; return its queue and the job."""
    queue = create_hub_queue()
    job = submit_task(queue, task, "ada", on_progress=lambda job: on_progress(job.message))
    return queue, job


def run_hub_task(task, on_progress=lambda message: None, seconds=110):
    """Run a job until its process has ended, and return it."""
    queue, job = start_hub_task(task, on_progress)
    assert job.released.wait(seconds), f"still running: {job.message}"
    queue.close()
    return job
