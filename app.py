"""Opens the Transformer Playground: `python app.py`."""

import click


@click.command()
@click.option("--host", default=None, help="Serve to other machines too, on this address (0.0.0.0: all). [default: this machine only]")
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="[default: the first free one from 7860]")
def main(host: str | None, port: int | None) -> None:
    """Open the playground in a web page."""
    from playground.training.environment import NumberError, check_numbers

    try:
        check_numbers()
    except NumberError as error:
        raise click.ClickException(str(error)) from None
    from playground.ui.app import serve

    serve(host, port)


if __name__ == "__main__":  # worker processes import this file too, and must not start the page again
    main()
