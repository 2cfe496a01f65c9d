"""Background jobs: their queue, its executors and their processes. It knows nothing of runs."""
