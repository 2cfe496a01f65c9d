"""Floor 10: the commands of `python -m playground`, a module for each kind. What they need is loaded when they run."""
