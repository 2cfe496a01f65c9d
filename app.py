"""Opens the Transformer Playground: `python app.py`."""

import click


@click.command()
@click.option(
    "--host",
    default=None,
    help="Serve to other machines too, on this address (0.0.0.0: all). [default: this machine only]",
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
    help="Serve to whoever has a link, for a week at most, through Gradio's tunnel.",
)
@click.option(
    "--browser/--no-browser",
    default=True,
    help="Open the page, where there is a screen. [default: --browser]",
)
def main(host: str | None, port: int | None, share: bool, browser: bool) -> None:
    """Open the playground in a web page."""
    from playground.training.environment import NumberError, check_numbers

    try:
        check_numbers()
    except NumberError as error:
        raise click.ClickException(str(error)) from None
    from playground.ui.app import serve

    serve(host, port, share=share, browser=browser)


if (
    __name__ == "__main__"
):  # worker processes import this file too, and must not start the page again
    main()
