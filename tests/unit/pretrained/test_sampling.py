"""The tokens that top-p sampling may choose."""

import torch

from playground.pretrained import inference


def test_top_p_samples_from_the_smallest_set_of_tokens():
    logits = torch.tensor([0.1, 0.5, 0.25, 0.15]).log()
    generator = torch.Generator().manual_seed(0)

    def sampled_tokens(top_p):
        return {inference.sample(logits, 1.0, top_p, generator) for _ in range(300)}

    assert sampled_tokens(0.4) == {1}
    assert sampled_tokens(0.6) == {1, 2}
    assert sampled_tokens(0.76) == {1, 2, 3}
    assert sampled_tokens(1.0) == {0, 1, 2, 3}
