"""The command that starts the web app. It imports little, because worker processes import it."""

import os
import signal
from contextlib import suppress

import click


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
    from playground.common.env import EnvError, validate_env

    try:
        validate_env()
    except EnvError as error:
        raise click.ClickException(str(error)) from None
    from playground.server.app import serve

    serve(host, port, share=share, browser=browser)
