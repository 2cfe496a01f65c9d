"""Measurements behind the numbers in the documentation.

`python -m benchmarks` runs them and rewrites RESULTS.md.
"""
