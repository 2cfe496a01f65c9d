"""A worker process per run, the run registry, and the inspection process.

The server process imports this layer without importing torch. Tensors live in the workers.
"""
