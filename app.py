"""Open the Transformer Playground: `python app.py`."""

from playground.entry_point import main

if __name__ == "__main__":  # worker processes import this file, and must not serve the page
    main("python app.py", "app")
