import pytest
import torch
from torch import nn

from playground.models.config import RecurrentConfig
from playground.models.recurrent import Recurrent
from playground.models.rnn_cells import CELLS

TORCH = {"rnn": (nn.RNN, nn.RNNCell), "lstm": (nn.LSTM, nn.LSTMCell), "gru": (nn.GRU, nn.GRUCell)}
SOURCE_BS = torch.tensor([[3, 4, 5, 6, 2], [7, 2, 0, 0, 0], [2, 0, 0, 0, 0]])
TARGET_BT = torch.tensor([[1, 6, 5, 4], [1, 7, 2, 0], [1, 2, 0, 0]])


def network(**sizes):
    torch.manual_seed(0)
    return Recurrent(RecurrentConfig(**{"d_model": 8, "n_layers": 2} | sizes)).eval()


def copied(module, cells):
    """Return PyTorch's module with the weights of these cells, layer by layer."""
    with torch.no_grad():
        for layer, cell in enumerate(cells):
            for name, actual in (("ih", cell.input_proj), ("hh", cell.hidden_proj)):
                end = f"_{name}_l{layer}" if hasattr(module, "weight_ih_l0") else f"_{name}"
                getattr(module, "weight" + end).copy_(actual.weight)
                getattr(module, "bias" + end).copy_(actual.bias)
    return module


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_equals_torchs_with_the_same_weights(name):
    torch.manual_seed(1)
    cell, torch_module = CELLS[name](5, 8), TORCH[name][1](5, 8)
    for weight in cell.parameters():
        nn.init.normal_(weight)
    copied(torch_module, [cell])
    x_BD, state = torch.randn(7, 5), tuple(torch.randn(7, 8) for _ in range(cell.n_states))
    actual = cell(cell.input_proj(x_BD), state)
    expected = torch_module(x_BD, state if name == "lstm" else state[0])
    for mine, its in zip(actual, expected if name == "lstm" else (expected,), strict=True):
        torch.testing.assert_close(mine, its, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CELLS)
def test_the_encoder_equals_torchs_on_packed_sequences(name):
    """Padding affects neither the states nor the last state."""
    model = network(cell=name)
    torch_module = copied(TORCH[name][0](8, 8, num_layers=2, batch_first=True), model.encoder_cells)
    lengths = (SOURCE_BS != 0).sum(1)
    packed = nn.utils.rnn.pack_padded_sequence(
        model.source_token_embedding(SOURCE_BS), lengths, batch_first=True
    )
    expected, last = torch_module(packed)
    expected_BSD, _ = nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)
    memory_BSD, states = model.encode(SOURCE_BS)
    real_BS = SOURCE_BS != 0
    torch.testing.assert_close(memory_BSD[real_BS], expected_BSD[real_BS], atol=1e-5, rtol=1e-5)
    for part, its in enumerate(last if name == "lstm" else (last,)):
        ours = torch.stack([state[part] for state in states])
        torch.testing.assert_close(ours, its, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CELLS)
def test_decoder_without_attention_equals_torch_rnn(name):
    model = network(cell=name)
    torch_module = copied(TORCH[name][0](8, 8, num_layers=2, batch_first=True), model.decoder_cells)
    _, states = model.encode(SOURCE_BS)
    start = tuple(torch.stack([state[part] for state in states]) for part in range(len(states[0])))
    embedded_BTD = model.target_token_embedding(TARGET_BT)
    hidden_BTD, _ = torch_module(embedded_BTD, start if name == "lstm" else start[0])
    logits_BTV, expected_BTV = model(SOURCE_BS, TARGET_BT), model.output_proj(hidden_BTD)
    torch.testing.assert_close(logits_BTV, expected_BTV, atol=1e-5, rtol=1e-5)


def test_dot_attention_is_softmax_of_products_joined_with_state():
    model, weights = network(attention="dot"), []
    logits_BTV = model(SOURCE_BS, TARGET_BT, weights)
    memory_BSD, states = model.encode(SOURCE_BS)
    embedded_BTD = model.target_token_embedding(TARGET_BT)
    hidden_BTD, _ = model._run_layers(model.decoder_cells, embedded_BTD, states)
    for b, length in enumerate([5, 2, 1]):
        for t in range(4):
            scores = [hidden_BTD[b, t] @ memory_BSD[b, s] for s in range(length)]
            share_S = torch.stack(scores).softmax(-1)
            torch.testing.assert_close(weights[0][b, 0, t, :length], share_S, atol=1e-6, rtol=1e-5)
            context_D = sum(share_S[s] * memory_BSD[b, s] for s in range(length))
            seen_D = model.context_proj(torch.cat([context_D, hidden_BTD[b, t]])).tanh()
            expected_V = model.output_proj(seen_D)
            torch.testing.assert_close(logits_BTV[b, t], expected_V, atol=1e-5, rtol=1e-5)


def test_additive_attention_is_mlp_softmax_and_context_enters_step():
    model, weights = network(attention="additive", n_layers=1), []
    logits_BTV = model(SOURCE_BS, TARGET_BT, weights)
    memory_BSD, ((before_BD,),) = model.encode(SOURCE_BS)
    attention = model.attention
    for b, length in enumerate([5, 2, 1]):
        state = (before_BD[b : b + 1],)
        for t in range(4):
            query_D, memory_SD = attention.query_proj(state[0][0]), memory_BSD[b, :length]
            hidden = [(query_D + attention.memory_proj(memory_D)).tanh() for memory_D in memory_SD]
            share_S = torch.cat([attention.score_proj(each) for each in hidden]).softmax(-1)
            torch.testing.assert_close(weights[0][b, 0, t, :length], share_S, atol=1e-6, rtol=1e-5)
            context_D = sum(share_S[s] * memory_BSD[b, s] for s in range(length))
            cell = model.decoder_cells[0]
            x_D = torch.cat([model.target_token_embedding(TARGET_BT[b, t]), context_D])
            state = cell(cell.input_proj(x_D)[None], state)
            expected_V = model.output_proj(state[0][0])
            torch.testing.assert_close(logits_BTV[b, t], expected_V, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("alignment", ["additive", "dot"])
def test_padding_gets_no_weight_at_all(alignment):
    weights = []
    network(attention=alignment)(SOURCE_BS, TARGET_BT, weights)
    assert weights[0].shape == (3, 1, 4, 5)
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(3, 1, 4))
    assert not weights[0][1, 0, :, 2:].any()
    assert not weights[0][2, 0, :, 1:].any()


def test_without_attention_there_are_no_heads():
    weights = []
    network(attention="none")(SOURCE_BS, TARGET_BT, weights)
    assert weights == []


def test_an_lstm_begins_by_remembering():
    cell = CELLS["lstm"](8, 8)
    assert (cell.input_proj.bias[8:16] == 1).all()
    assert not cell.input_proj.bias[:8].any()
