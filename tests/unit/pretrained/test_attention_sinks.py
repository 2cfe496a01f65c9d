import torch

from playground.pretrained.attention.prompt import sink_note


def outputs(first_LH, n=5, causal=True):
    """Attention with these weights on the first token, and equal weights on the rest."""
    mask_QM = torch.ones(n, n).tril().bool() if causal else torch.ones(n, n).bool()
    first_LHQ1 = torch.tensor(first_LH)[..., None, None].expand(-1, -1, n, 1)
    others_QM = mask_QM[:, 1:].float()
    others_QM = others_QM / others_QM.sum(1, keepdim=True).clamp(min=1)
    weights_LHQM = torch.cat((first_LHQ1, (1 - first_LHQ1) * others_QM), -1)
    return weights_LHQM, mask_QM


def test_layers_with_most_attention_on_the_first_token_are_named():
    note = sink_note(*outputs([[0.2, 0.3], [0.6, 0.8], [0.9, 0.7]]))
    assert note.startswith("Attention sink: in 2 of 3 layers, 75% of the attention")
    assert "equal weights would put 32% there" in note  # 1/2, 1/3, 1/4 and 1/5
    assert "Xiao et al., 2023" in note
    assert sink_note(*outputs([[0.9]], causal=False)).startswith("Attention sink: in 1 of 1 layers")


def test_no_sink_is_named_without_one():
    assert sink_note(*outputs([[0.4, 0.3]])) == ""
    assert sink_note(*outputs([[0.7]], n=2)) == ""  # equal weights already put half of it there
    assert sink_note(*outputs([[1.0]], n=1)) == ""
