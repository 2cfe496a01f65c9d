"""Open the Transformer Playground: `python app.py`."""

from playground.cli.app import app as main

if __name__ == "__main__":  # worker processes import this file, and must not serve the page
    main()
