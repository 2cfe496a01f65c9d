"""The commands of `python -m playground`, one module per topic.

Their dependencies are imported when a command runs.
"""
