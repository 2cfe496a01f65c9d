import pytest
import torch

from playground.errors import UserError, error_response, raise_for_error
from tests.support.handcrafted_models import random_model, recurrent_model
from tests.support.inspectors import render_view

NAMES = {"lstm": "figoch", "gru": "rznh", "rnn": "h"}


def render(subject, **options):
    response = render_view(subject, "gates", {"text": "5 3 9", **options})
    assert "error" not in response, response
    return response


@pytest.mark.parametrize("cell", NAMES)
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_every_gate_and_state_has_a_number_for_each_position(cell, stack):
    subject = recurrent_model(cell=cell)
    for name in NAMES[cell]:
        response = render(subject, stack=stack, layer=1, quantity=name)
        assert response["quantity"] == name
        assert [each["name"] for each in response["quantities"]] == list(NAMES[cell])
        assert response["of"] == [4, 8]
        values = torch.tensor(response["values"])
        low = 0 if response["is_gate"] else -1
        assert name == "c" or bool(((values >= low) & (values <= 1)).all())
        means = next(each["means"] for each in response["quantities"] if each["name"] == name)
        assert means == pytest.approx(values.abs().mean(1).tolist(), abs=2e-3)
    tokens = ["5", "3", "9", "EOS"] if stack == "encoder" else ["SOS", "9", "3", "5"]
    assert response["tokens"] == tokens


@pytest.mark.parametrize("cell", NAMES)
def test_the_states_follow_from_the_gates(cell):
    subject = recurrent_model(cell=cell, n_layers=1)
    now = {name: torch.tensor(render(subject, quantity=name)["values"]) for name in NAMES[cell]}
    h = now["h"]
    before = torch.cat([torch.zeros(1, 8), h[:-1]])
    if cell == "lstm":
        memory = torch.cat([torch.zeros(1, 8), now["c"][:-1]])
        expected = now["f"] * memory + now["i"] * now["g"]
        torch.testing.assert_close(now["c"], expected, atol=5e-3, rtol=0)
        torch.testing.assert_close(h, now["o"] * now["c"].tanh(), atol=5e-3, rtol=0)
    if cell == "gru":
        expected = (1 - now["z"]) * now["n"] + now["z"] * before
        torch.testing.assert_close(h, expected, atol=5e-3, rtol=0)
    encoded = subject.model.encode(subject.encode_text("5 3 9").source_BS)[0][0].detach()
    torch.testing.assert_close(h, encoded, atol=5e-3, rtol=0)


@pytest.mark.parametrize("attention", ["additive", "dot"])
def test_models_with_attention_have_gates_too(attention):
    response = render(recurrent_model(cell="gru", attention=attention), stack="decoder")
    assert len(response["values"]) == len(response["tokens"]) == 4


def test_other_models_have_no_gates_and_an_unknown_gate_is_replaced():
    response = render_view(random_model(), "gates", {"text": "5 3 9"})
    assert "only recurrent models have gates" in response["error"]
    assert response["code"] == "not-applicable"
    assert len(response["prediction"]) >= 1
    invalid = render_view(random_model(), "gates", {"text": "5 x 9"})
    assert (invalid["code"], "prediction" in invalid) == ("not-applicable", False)
    assert render(recurrent_model(cell="gru"), quantity="f")["quantity"] == "r"
    for attention, others in (("none", []), ("additive", ["attention"])):
        model, views = recurrent_model(attention=attention), [*others, "gates", "parameters"]
        assert render_view(model, "trace", {"text": "5 3 9"})["views"] == views
        assert render_view(model, "gates", {"text": "5 3 9"})["views"] == views
    assert "Every number" in render_view(recurrent_model(), "attention", {"text": "5 3 9"})["error"]


def test_the_details_of_an_error_pass_through_a_process():
    response = render_view(recurrent_model(), "trace", {"text": "5 3 9"})
    with pytest.raises(UserError) as caught:
        raise_for_error(response)
    assert error_response(caught.value) == response
    assert len(response["target"]) == 4
