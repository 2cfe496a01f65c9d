"""Functions of jobs that fail on request, for the processes of real queues."""

import errno
import os
import signal
import threading


def run(failure, *_):
    """Fail as requested, or return the id of this process."""
    if failure == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif failure == "hung":
        threading.Event().wait()
    elif failure == "full disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/some/path")
    return {"process": os.getpid()}


def create_handler():
    return lambda kind, *arguments: run(*arguments)
