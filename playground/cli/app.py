"""The command that starts the web app. It imports little, because worker processes import it."""

import errno
import os
import signal
import socket
from contextlib import suppress

import click

from .common import exit_with_error


@click.command()
@click.option(
    "--host",
    default=None,
    help="Serve other machines too, on this address (0.0.0.0: all). [default: this machine only]",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=None,
    help="[default: the first free one from 7860]",
)
@click.option(
    "--share",
    is_flag=True,
    help="Create a public link through Gradio's tunnel, valid for at most a week.",
)
@click.option(
    "--browser/--no-browser",
    default=True,
    help="Open a browser if there is a display. [default: --browser]",
)
def app(host: str | None, port: int | None, share: bool, browser: bool) -> None:
    """Open the playground in a web page."""
    # Until `serve` sets its handlers: an import can swallow a KeyboardInterrupt.
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    check_address(host or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1", port)

    from playground.server.app import serve

    serve(host, port, share=share, browser=browser)


def check_address(host: str, port: int | None) -> None:
    """Exit with a message, before the imports of the server, if it cannot listen at an address."""
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port or 0, type=socket.SOCK_STREAM)
        with socket.socket(addresses[0][0]) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(addresses[0][4])
    except (socket.gaierror, UnicodeError):
        exit_with_error(
            f"--host {host} is not known; use an address of this machine, 0.0.0.0 for all of them, "
            "or leave it out"
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            exit_with_error(
                f"--port {port} is in use by another program; choose another port, or leave it out "
                "for the first free one"
            )
        if error.errno == errno.EACCES:
            exit_with_error(f"--port {port} needs administrator rights; choose one from 1024")
        exit_with_error(
            f"--host {host} is not an address of this machine; use 0.0.0.0 for all of them, or "
            "leave it out"
        )
