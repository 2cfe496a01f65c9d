"""What the dialog Help of the page lists: the keys, and the words of the figures."""

KEYS = (
    ("space", "pause, resume"),
    ("→", "one step, while paused"),
    ("← →", "on a slider of steps: the stored step before or after"),
    ("← → ↑ ↓", "on a head of the diagram: select another head"),
    ("Enter", "on the selected head: open it in Inspect"),
    ("← → ↑ ↓", "on a curve: read single values"),
    ("+ − 0", "on a curve: zoom in, zoom out, show all steps"),
    ("?", "this list"),
)
TERMS = (
    ("SOS, EOS, PAD", "tokens for the start of a sequence, its end, and positions without a token"),
    ("training loss", "of one batch, with the weights in training"),
    (
        "held-out loss",
        "of sequences that are never trained on, with the weights that the model predicts with: "
        "averaged ones in the preset Fast, whose loss is far lower",
    ),
    ("exact match", "fraction of held-out sequences whose output has no wrong token"),
    (
        "number of a block",
        "how long the vectors are that it adds, relative to those it adds them to; at 1.00 both "
        "are equally long",
    ),
)
