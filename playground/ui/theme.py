"""The theme of the page."""

from typing import Any

import gradio as gr


def build_theme() -> Any:
    """Return a theme with system fonts and one accent color.

    The page loads no fonts from other servers.
    """
    return gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.gray,
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "DejaVu Sans Mono", "monospace"],
        radius_size=gr.themes.sizes.radius_sm,
    ).set(
        checkbox_background_color_selected="var(--pg-accent)",
        checkbox_background_color_selected_dark="var(--pg-accent)",
        color_accent="var(--pg-accent)",
        block_border_width="0px",
        block_padding="0px",
        block_shadow="none",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        layout_gap="14px",
    )
