"""The views of the tabs: the module of each, and its value."""

import gradio as gr

from .mount import build_view, preload_links

# The header and the Train tab are the first that a page shows.
PRELOAD_HEAD = preload_links(
    ("shell/main.js", "train/main.js"),
    ("shared/common.css", "shell/shell.css", "train/live.css", "train/diagram/diagram.css"),
)


def page_bar() -> gr.HTML:
    """Return the bar with the model, step and input of all tabs. It has no value."""
    return build_view("page-bar", "shell/main.js")


def live_view() -> gr.HTML:
    """Return the view.

    Its value is {"owner": owner key, "subject": a new run to open, "first": default model}.
    """
    return build_view("live", "train/main.js")


def inspect_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key, "link": state from a link}."""
    return build_view("inspect", "inspect/main.js")


def compare_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key}."""
    return build_view("compare", "compare/main.js")


def lab_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key}."""
    return build_view("lab", "lab/main.js")


def hub_view() -> gr.HTML:
    """Return the view; its value is {"owner": owner key of the page}."""
    return build_view("hub", "hub/main.js")


def learn_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key}."""
    return build_view("learn", "learn/main.js")


def dataset_panel() -> gr.HTML:
    """Return the panel.

    Its value is {"owner": owner key, "rows": the content hash of the selected dataset}.
    """
    return build_view("rows", "train/dataset_panel.js", hidden=True)
