"""Background work: processes, and the queue in front of them. It knows nothing of runs."""
