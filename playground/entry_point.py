"""The command `transformer-playground`, the same as `python -m playground`.

Worker processes import the script of the command again, and this module with it, so it imports
little.
"""

import signal
import sys


def main() -> None:
    """Run the command line."""
    # Ctrl-C during the import, which takes seconds, must not print a traceback.
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(128 + number))
    try:
        from playground.__main__ import run

        run(name="transformer-playground")
    finally:
        # At exit the interpreter restores the default action of all handlers except SIG_IGN.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
