"""The commands for the web app. They import little, because worker processes import them."""

import errno
import json
import os
import signal
import socket
from contextlib import suppress

import click

from playground.common.env import ENV_NUMBERS, PREFIX, env_number
from playground.common.platform import reuse_port
from playground.models.config_fields import format_number

from .common import exit_with_error, json_option


@click.command()
@click.option(
    "--host",
    help="Serve other machines too, on this address (0.0.0.0: all). [default: this machine only]",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="[default: the first free one from 7860]"
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
            reuse_port(probe)
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


@click.command()
@json_option
def limits(as_json: bool) -> None:
    """List the limits of a server: how many things at a time, sizes, rates and times.

    docs/hosting.md describes the variables. PLAYGROUND_LIMITS changes the numbers of the table, as
    in PLAYGROUND_LIMITS="queued-runs.per-address=400, queued-runs.total=400".
    """
    from playground.jobs.admission import LIMITS, limit

    admissions = {name: limit(name) for name in LIMITS}
    variables = {PREFIX + name: env_number(name) for name in ENV_NUMBERS}
    if as_json:
        table = {
            name: {"per-owner": each.per_owner, "per-address": each.of_address, "total": each.total}
            for name, each in admissions.items()
        }
        click.echo(json.dumps({"limits": table, "variables": variables}))
        return
    click.echo(f"{'limit':<19}{'per owner':>10}{'per address':>12}{'total':>7}  of")
    for name, each in admissions.items():
        numbers = ("–" if n is None else n for n in (each.per_owner, each.of_address, each.total))
        click.echo("{:<19}{:>10}{:>12}{:>7}  {}".format(name, *numbers, each.nouns))
    click.echo()
    for name, value in variables.items():
        click.echo(f"{name:<33}{format_number(value):>8}")
