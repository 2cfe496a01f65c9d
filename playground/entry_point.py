"""The command `transformer-playground`, the same as `python -m playground`; app.py uses it too.

Worker processes import the script of the command again, and this module with it, so it imports
little.
"""

import signal
import sys


def main(name: str = "transformer-playground", command: str = "") -> None:
    """Run the command line, or only one of its commands; `name` is that of the program."""
    # Ctrl-C during the import, which takes seconds, must not print a traceback.
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(128 + number))
    try:
        from playground.__main__ import main as commands
        from playground.__main__ import run

        run(name=name, command=commands.commands[command] if command else commands)
    finally:
        # At exit the interpreter restores the default action of all handlers except SIG_IGN.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
