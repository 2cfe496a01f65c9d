"""Opens the Transformer Playground: `python app.py`."""


def main() -> None:
    from playground.ui.app import serve

    serve()


if __name__ == "__main__":  # worker processes import this file too, and must not start the page again
    main()
