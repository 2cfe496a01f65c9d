"""The views of the tabs: which template, style sheets and scripts each has."""

from __future__ import annotations

import gradio as gr

from .mount import build_view

# Scripts are concatenated in their order.
LIVE_SCRIPTS = (
    "common.js",
    "strings.js",
    "status.js",
    "canvas.js",
    "train_charts.js",
    "model_diagram.js",
    "live.js",
    "timeline.js",
    "runs.js",
    "share_dialog.js",
)
INSPECT_SHARED_SCRIPTS = (
    "common.js",
    "strings.js",
    "dom.js",
    "canvas.js",
    "heatmap.js",
    "inspect.js",
)
INSPECT_SCRIPTS = (
    *INSPECT_SHARED_SCRIPTS,
    "inspect_attention.js",
    "inspect_heads_ablation_lens.js",
    "inspect_activations.js",
    "inspect_start.js",
)
INSPECT_STYLES = (
    "common.css",
    "inspect.css",
    "inspect_heads_ablation_lens.css",
    "inspect_activations.css",
)
COMPARE_SHARED_SCRIPTS = (
    "common.js",
    "strings.js",
    "dom.js",
    "canvas.js",
    "heatmap.js",
    "compare.js",
)
COMPARE_VIEW_SCRIPTS = (
    "compare_benchmark.js",
    "compare_matched_parameters.js",
    "compare_finetune.js",
    "compare_inference.js",
    "compare_attention.js",
    "compare_embeddings.js",
)
COMPARE_SCRIPTS = (*COMPARE_SHARED_SCRIPTS, *COMPARE_VIEW_SCRIPTS, "compare_start.js")
COMPARE_STYLES = ("common.css", "compare.css")
LAB_SHARED_SCRIPTS = ("common.js", "strings.js", "dom.js", "canvas.js", "lab.js", "charts.js")
LAB_SCRIPTS = (
    *LAB_SHARED_SCRIPTS,
    "lab_new_experiment.js",
    "lab_results.js",
    "lab_replications.js",
    "lab_start.js",
)
LAB_STYLES = ("common.css", "lab.css")
HUB_SCRIPTS = ("common.js", "hub.js")
LEARN_SHARED_SCRIPTS = (
    "common.js",
    "strings.js",
    "dom.js",
    "canvas.js",
    "heatmap.js",
    "learn.js",
    "charts.js",
)
LEARN_SCRIPTS = (
    *LEARN_SHARED_SCRIPTS,
    "learn_figures.js",
    "learn_lessons.js",
    "learn_bugs.js",
    "learn_teach.js",
    "learn_start.js",
)
LEARN_STYLES = ("common.css", "learn.css")


def live_view() -> gr.HTML:
    """Return the view.

    Its value is {"owner": owner key, "subject": the model to open first}.
    """
    return build_view("live", ("common.css", "live.css"), LIVE_SCRIPTS)


def inspect_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key, "link": state from a link}."""
    return build_view("inspect", INSPECT_STYLES, INSPECT_SCRIPTS)


def compare_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key}."""
    return build_view("compare", COMPARE_STYLES, COMPARE_SCRIPTS)


def lab_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key}."""
    return build_view("lab", LAB_STYLES, LAB_SCRIPTS)


def hub_view() -> gr.HTML:
    """Return the view; its value is {"owner": owner key of the page}."""
    return build_view("hub", ("common.css", "hub.css"), HUB_SCRIPTS)


def learn_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key}."""
    return build_view("learn", LEARN_STYLES, LEARN_SCRIPTS)


def dataset_panel() -> gr.HTML:
    """Return the panel.

    Its value is {"owner": owner key, "rows": the content hash of the selected dataset}.
    """
    return build_view(
        "rows", ("common.css", "dataset_panel.css"), ("common.js", "dataset_panel.js"), hidden=True
    )
