"""Properties of every architecture."""

import copy
from itertools import chain

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from playground.architectures import ARCHITECTURES, load_architecture
from playground.architectures.decoder_only import left_pad
from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.checkpoint import (
    WeightsSerializer,
    load_model,
    resume_trainer,
    save_checkpoint,
)
from playground.models.config_fields import ConfigError
from playground.tasks import load_task
from playground.tasks.held_out import build_held_out_set
from playground.tasks.task import Batch, make_batch
from playground.training.run_config import RunConfig, field_named
from playground.training.trainer import Trainer
from tests.support.small_configs import MAX_STEPS, VARIANTS, small_config

REVERSE = load_task("reverse", 4)
KINDS = ("encoder", "decoder", "cross")


@pytest.fixture(scope="module")
def trained_models():
    """The small model of each architecture at several steps, {steps: model}. Do
    not train these.
    """
    stored = {}

    def ages(name):
        if name not in stored:
            trainer = Trainer(small_config(name))
            stored[name] = {0: copy.deepcopy(trainer.model).eval()}
            for metrics in trainer:
                if metrics.step in (30, 60, MAX_STEPS):
                    stored[name][metrics.step] = copy.deepcopy(trainer.model).eval()
        return stored[name]

    return ages


def rows():
    """Four sequences of 4, 2, 1 and 3 tokens; the third is held out."""
    sequence_BL = torch.tensor([[3, 4, 5, 6], [6, 5, 0, 0], [4, 0, 0, 0], [3, 3, 4, 0]])
    lengths_B, weights_B = torch.tensor([4, 2, 1, 3]), torch.tensor([1.0, 1.0, 0.0, 1.0])
    return make_batch(REVERSE, sequence_BL, lengths_B, weights_B)


def alone(batch, b):
    """Return one row of a batch without its padding."""
    source_BS, target_BT = (
        x[b : b + 1, : int((x[b] != 0).sum())] for x in (batch.source_BS, batch.target_BT)
    )
    return Batch(source_BS, target_BT, batch.loss_weight_B[b : b + 1])


def wider(batch, n):
    return Batch(
        *(torch.nn.functional.pad(x, (0, n)) for x in (batch.source_BS, batch.target_BT)),
        batch.loss_weight_B,
    )


def weights_of(record):
    return {kind: layers for kind in KINDS if (layers := getattr(record, kind))}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_describes_itself(name):
    family = ARCHITECTURES[name]
    assert family.title
    assert family.description.endswith(".")
    RunConfig.from_flat({"architecture": name, **family.overrides})
    assert set(family.setting_names()) >= {"d_model", "n_layers", "dropout", "max_positions"}


SIZES = {
    "d_model": st.sampled_from([4, 8, 12]),
    "n_heads": st.sampled_from([1, 2, 4]),
    "n_layers": st.integers(1, 3),
    "d_ff": st.integers(1, 20),
    "max_positions": st.integers(2, 20),
    "source_vocab_size": st.integers(4, 20),
}


def fields_that_change_the_size(config_class):
    """Return a strategy for the sizes, the choices and the switches of an architecture."""
    fields = config_class.__dataclass_fields__
    choices = {
        name: st.sampled_from(field.metadata.get("choices") or (True, False))
        for name, field in fields.items()
        if field.metadata.get("choices") or field.type in (bool, "bool")
    }
    return st.fixed_dictionaries(
        {name: values for name, values in (SIZES | choices).items() if name in fields}
    )


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=8)
@given(data=st.data())
def test_the_parameter_count_is_that_of_the_model_that_is_built(name, data):
    config = ARCHITECTURES[VARIANTS[name]["architecture"]].config_class
    sizes = data.draw(fields_that_change_the_size(config))
    if name != "transformer":
        sizes["target_vocab_size"] = sizes["source_vocab_size"]
    try:
        config(**sizes)
    except ConfigError:  # two settings exclude each other
        assume(False)
    model = load_architecture(VARIANTS[name]["architecture"])(config(**sizes))
    assert parameter_count(config(**sizes)) == sum(weight.numel() for weight in model.parameters())


FOREIGN = [("recurrent", "n_heads", 2), ("bert", "share_embeddings", True)]
FOREIGN += [("gpt2", "position_type", "sinusoidal")]


@pytest.mark.parametrize(("name", "setting", "value"), FOREIGN)
def test_settings_without_a_meaning_are_rejected_by_name(name, setting, value):
    with pytest.raises(ConfigError, match=f"{setting} is .* does not have this setting") as caught:
        RunConfig.from_flat({"architecture": name, setting: value})
    assert caught.value.field == setting
    default = field_named(setting).default  # from a run of another architecture
    assert setting not in RunConfig.from_flat({"architecture": name, setting: default}).to_flat()


@pytest.mark.parametrize("name", ["decoder-only", "bert", "gpt2", "bart"])
def test_a_shared_vocabulary_rejects_two_vocabularies(name):
    with pytest.raises(ConfigError, match=r"target_vocab_size is 14, .* make it 13") as caught:
        ARCHITECTURES[name].config_class(target_vocab_size=14)
    assert caught.value.field == "target_vocab_size"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_saved_run_continues_bit_equal_to_an_uninterrupted_one(name, tmp_path):
    straight = Trainer(small_config(name, dropout=0.1))
    losses = [straight.train_step().loss for _ in range(5)]
    # one after the other: they share torch's generator
    broken = Trainer(small_config(name, dropout=0.1))
    save_checkpoint(tmp_path / "kept", broken, [broken.train_step() for _ in range(3)])
    _, loaded = load_model(tmp_path / "kept")
    stored = (tmp_path / "kept" / "model.safetensors").read_bytes()
    assert WeightsSerializer(broken.model)() == WeightsSerializer(loaded)() == stored
    resumed, _ = resume_trainer(tmp_path / "kept")
    assert [resumed.train_step().loss for _ in range(2)] == losses[3:]
    assert WeightsSerializer(straight.model)() == WeightsSerializer(resumed.model)()


@pytest.mark.parametrize("name", VARIANTS)
def test_exact_match_is_that_of_the_free_running_output(name, trained_models):
    requested = build_held_out_set(REVERSE, 200, 1, 4).batch
    shares = []
    for model in trained_models(name).values():
        right_B = (model.generate(requested.source_BS, 5) == requested.labels_BT).all(1)
        assert torch.equal(model.is_exact_match(requested), right_B)
        shares.append(right_B.float().mean().item())
    assert shares[0] < 0.1
    assert any(0 < share < 1 for share in shares)


@pytest.mark.smoke
@pytest.mark.parametrize("name", VARIANTS)
def test_an_answer_is_the_same_alone_and_in_a_padded_batch(name, trained_models):
    model, batch = trained_models(name)[60], rows()
    padded, record = wider(batch, 3), weights_of(model.attention_weights(wider(batch, 3)))
    input_BT = model.generate(padded.source_BS, 8)
    for b in range(4):
        single = alone(batch, b)
        assert torch.equal(model.generate(single.source_BS, 8)[0], input_BT[b])
        trained = Batch(single.source_BS, single.target_BT, torch.ones(1))
        others = Batch(padded.source_BS, padded.target_BT, torch.eye(4)[b])
        torch.testing.assert_close(model.loss(trained), model.loss(others), atol=1e-5, rtol=1e-5)
        for kind, layers in weights_of(model.attention_weights(single)).items():
            rows_Q, columns_M = model.attention_tokens(single)[kind]
            wide_Q, wide_M = model.attention_tokens(padded)[kind]
            queries, memory = stored(rows_Q[0], wide_Q[b]), stored(columns_M[0], wide_M[b])
            for weights_BHQM, wide_BHQM in zip(layers, record[kind], strict=True):
                part_HQM = wide_BHQM[b][:, queries][:, :, memory]
                torch.testing.assert_close(weights_BHQM[0], part_HQM, atol=1e-5, rtol=1e-4)


def stored(tokens_Q, wide_Q):
    """Where the tokens of a row without padding stand in the padded one: padding is in front,
    behind, or in the middle of blanks.
    """
    offset = int((wide_Q != 0).int().argmax())
    return slice(offset, offset + len(tokens_Q))


@pytest.mark.parametrize("name", VARIANTS)
def test_attention_sums_to_one_leaves_out_padding_and_fits_its_axes(name, trained_models):
    model, batch = trained_models(name)[MAX_STEPS], rows()
    axes, layers = model.attention_tokens(batch), weights_of(model.attention_weights(batch))
    assert set(axes) == set(layers)
    for kind, weights in layers.items():
        rows_BQ, columns_BM = axes[kind]
        for weights_BHQM in weights:
            assert weights_BHQM.shape[0::2] == (4, rows_BQ.shape[1])
            assert weights_BHQM.shape[3] == columns_BM.shape[1]
            torch.testing.assert_close(weights_BHQM.sum(-1), torch.ones_like(weights_BHQM[..., 0]))
            is_visible = (columns_BM != 0)[:, None, None] | (rows_BQ == 0)[:, None, :, None]
            assert weights_BHQM.masked_fill(is_visible, 0).amax() == 0
    if VARIANTS[name]["architecture"] != "recurrent":
        assert len(next(iter(layers.values()))) == model.config.n_layers
        assert next(iter(layers.values()))[0].shape[1] == model.config.n_heads


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - {"encoder-only", "bert"}))
def test_a_later_target_token_does_not_affect_earlier_ones(name, trained_models):
    model, batch = trained_models(name)[60], rows().select(torch.tensor([0, 3]))
    changed_BT = batch.target_BT.clone()
    changed_BT[:, 3:] = torch.tensor([[5, 5, 6], [6, 6, 6]])
    before, after = (
        model.logits(Batch(batch.source_BS, target_BT, batch.loss_weight_B))
        for target_BT in (batch.target_BT, changed_BT)
    )
    torch.testing.assert_close(after[:, :3], before[:, :3], atol=1e-6, rtol=1e-5)
    assert not torch.allclose(after[:, 3:], before[:, 3:])


@pytest.mark.parametrize("name", VARIANTS)
def test_a_sequence_above_the_positions_is_rejected_with_numbers(name, trained_models):
    model, source_BS = trained_models(name)[0], rows().source_BS
    with pytest.raises(ValueError, match="max_tokens is 9, but the model has max_positions 8"):
        model.generate(source_BS, 9)
    with pytest.raises(ValueError, match="a source has 9 tokens, but the model has max_positions"):
        model.generate(torch.nn.functional.pad(source_BS, (0, 4)), 4)
    longest, target_BT = torch.tensor([[3, 4, 5, 6, 3, 4, 5, 2]]), [[1, 5, 4, 3, 6, 5, 4, 3, 2]]
    assert model.generate(longest, 8).shape == (1, 8)
    assert model.loss(Batch(longest, torch.tensor(target_BT), torch.ones(1))).isfinite()


@pytest.mark.parametrize("name", VARIANTS)
def test_held_out_rows_and_padding_teach_nothing(name, trained_models):
    model, batch = trained_models(name)[30], rows()
    changed_BT = batch.target_BT.clone()
    changed_BT[2, 1] = 6
    other = wider(Batch(batch.source_BS, changed_BT, batch.loss_weight_B), 2)
    torch.testing.assert_close(model.loss(other), model.loss(batch), atol=1e-6, rtol=1e-5)
    counted = [Batch(x.source_BS, x.target_BT, torch.ones(4)) for x in (wider(batch, 2), other)]
    assert not torch.isclose(model.loss(counted[0]), model.loss(counted[1]))


@pytest.mark.parametrize("name", VARIANTS)
def test_inference_disables_dropout_and_leaves_model_state_unchanged(name, trained_models):
    quiet = trained_models(name)[30]
    model_class = load_architecture(VARIANTS[name]["architecture"])
    model = model_class(small_config(name, dropout=0.5).model).train()
    model.load_state_dict(quiet.state_dict())
    before, state, batch = copy.deepcopy(model.state_dict()), torch.get_rng_state(), rows()
    assert torch.equal(model.is_exact_match(batch), quiet.is_exact_match(batch))
    assert torch.equal(model.generate(batch.source_BS, 5), quiet.generate(batch.source_BS, 5))
    noisy, still = (
        list(chain.from_iterable(weights_of(each.attention_weights(batch)).values()))
        for each in (model, quiet)
    )
    assert len(noisy) == len(still)
    assert all(map(torch.equal, noisy, still))
    assert all(module.training for module in model.modules())
    assert all(torch.equal(weight, before[key]) for key, weight in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(layer.requires_grad for layer in noisy)


@pytest.mark.parametrize("name", VARIANTS)
def test_answers_stop_at_eos(name, trained_models):
    input_BT = trained_models(name)[60].generate(
        build_held_out_set(REVERSE, 100, 1, 4).batch.source_BS, 8
    )
    behind_BT = (input_BT == 2).cumsum(1) - (input_BT == 2).long() > 0
    assert behind_BT.any()
    assert not input_BT[behind_BT].any()


def test_sources_end_together_with_their_padding_in_front():
    source_BS = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0], [2, 0, 0, 0]])
    assert left_pad(source_BS).tolist() == [[3, 4, 5, 2], [0, 0, 6, 2], [0, 0, 0, 2]]
