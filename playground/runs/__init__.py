"""Floor 6: a worker process per run, the registry that owns them, and a process that looks into checkpoints.

The process that serves the page imports this floor and stays free of torch: tensors live in the workers.
"""
