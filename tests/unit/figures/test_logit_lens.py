from playground.figures.logit_lens import logit_lens
from tests.support.figures import lens_data


def test_wrong_tokens_of_the_lens_are_framed():
    axes = logit_lens(lens_data(["4", "1", "EOS"], 1)).axes[0]
    assert len(axes.patches) == 2  # the embedding's row is reversed: its middle symbol is right


def test_tokens_without_a_target_are_called_generated():
    (caption,) = (
        text.get_text()
        for text in logit_lens(lens_data(["4", "EOS"], 1) | {"has_target": False}).texts
        if "columns:" in text.get_text()
    )
    assert caption.startswith("columns: generated tokens ")
