import functools
import itertools
import logging

import pytest
import torch
import transformers
from hypothesis import given, settings
from safetensors.torch import save_file
from transformers import AutoModelForSeq2SeqLM

from playground.architectures.decoder_only import left_pad
from playground.architectures.encoder_decoder import TransformerModel
from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.checkpoint import weights_by_name
from playground.checkpoints.tensors import serialize_tensors
from playground.hub.formats import PACKAGE_FORMATS
from playground.models import attention
from playground.models.automodel import PlaygroundConfig, PlaygroundForSeq2SeqLM
from playground.models.automodel_recurrent import PlaygroundRecurrentForSeq2SeqLM
from playground.models.automodel_single_stack import (
    PlaygroundDecoderOnlyForCausalLM,
    PlaygroundEncoderOnlyConfig,
    PlaygroundEncoderOnlyForMaskedLM,
)
from playground.models.automodel_torch_transformer import (
    PlaygroundTorchTransformerConfig,
    PlaygroundTorchTransformerForSeq2SeqLM,
)
from playground.models.config import POSITION_TYPES, TransformerConfig
from playground.models.config_fields import ConfigError
from playground.models.embeddings import InputEmbedding
from playground.models.transformer import AttentionWeights
from playground.tasks import EOS, PAD, SOS, load_task
from playground.tasks.held_out import build_held_out_set
from tests.support.auto_classes import register
from tests.support.small_models import build_small, model_settings

CLOSE = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture(autouse=True, scope="module")
def registered_classes():
    """Register our classes with the Auto classes, as the app does."""
    register(PACKAGE_FORMATS["transformer"])


@pytest.fixture(autouse=True)
def no_warnings():
    """Fail a test in which transformers logs a warning."""
    messages = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    assert messages == []


@pytest.fixture
def quiet():
    """Turn off the warning about missing weights."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)


build = functools.partial(build_small, TransformerModel)


def save_and_load(model, folder):
    """Save the weights as a checkpoint, and load them with transformers."""
    (folder / "model.safetensors").write_bytes(serialize_tensors(weights_by_name(model)))
    config = PlaygroundConfig(
        **{name: getattr(model.config, name) for name in TransformerConfig.__dataclass_fields__},
        dtype="float32",
    )
    config.save_pretrained(folder)
    config.default_generation_config().save_pretrained(folder)
    loaded, result = AutoModelForSeq2SeqLM.from_pretrained(
        folder, output_loading_info=True, use_safetensors=True
    )
    assert not any(result.values()), result
    return loaded


def sources(n=64, width=11, vocabulary=13):
    """Return random sources (BS) of all lengths, each followed by EOS and padding."""
    generator = torch.Generator().manual_seed(1)
    source_BS = torch.randint(3, vocabulary, (n, width), generator=generator)
    for row in range(n):
        length = row % (width - 1) + 1
        source_BS[row, length], source_BS[row, length + 1 :] = EOS, PAD
    return source_BS


def targets(n, width=7):
    generator = torch.Generator().manual_seed(2)
    target_BT = torch.randint(3, 13, (n, width), generator=generator)
    target_BT[:, 0] = SOS
    return target_BT


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A model, and the same one loaded with transformers."""
    model = build()
    return model, save_and_load(model, tmp_path_factory.mktemp("pair"))


def inputs_of(source_BS):
    return {"input_ids": source_BS, "attention_mask": (source_BS != PAD).long()}


def assert_same_outputs(model, loaded):
    """Compare logits and attention weights; return the inputs of the loaded model."""
    source_BS, target_BT = sources(8), targets(8)
    record = AttentionWeights()
    logits_BTV = model(source_BS, target_BT, record)
    inputs = inputs_of(source_BS) | {"decoder_input_ids": target_BT}
    result = loaded(**inputs, output_attentions=True)
    torch.testing.assert_close(result.logits, logits_BTV, **CLOSE)
    for name in ("encoder", "decoder", "cross"):
        attentions = list(result[f"{name}_attentions"])
        torch.testing.assert_close(attentions, getattr(record, name), **CLOSE)
    return inputs


@settings(max_examples=12)
@given(model_settings())
@torch.no_grad()
def test_the_published_model_equals_the_transformer(tmp_path_factory, overrides):
    model = build(**overrides)
    loaded = save_and_load(model, tmp_path_factory.mktemp("published"))
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float32}
    assert loaded.num_parameters() == parameter_count(model.config)
    assert_same_outputs(model, loaded)


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_saved_copy_loads(is_tied, tmp_path):
    loaded = save_and_load(build(tie_output_embeddings=is_tied, share_embeddings=is_tied), tmp_path)
    with torch.no_grad():
        loaded.get_output_embeddings().weight[3] += 1  # also changes the weights tied to it
    loaded.save_pretrained(tmp_path / "again")
    reloaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again")
    batch = inputs_of(sources(8)) | {"decoder_input_ids": targets(8)}
    assert torch.equal(reloaded(**batch).logits, loaded(**batch).logits)
    shared = reloaded.get_output_embeddings().weight is reloaded.get_input_embeddings().weight
    assert shared is is_tied


@torch.no_grad()
def test_padding_changes_nothing(pair):
    _, loaded = pair
    source_BS, target_BT = sources(20), targets(20)
    batched = loaded(**inputs_of(source_BS), decoder_input_ids=target_BT)
    recorded = loaded(**inputs_of(source_BS), decoder_input_ids=target_BT, output_attentions=True)
    noise_BS = torch.where(source_BS == PAD, 5, source_BS)  # masked positions may have any token
    mask = {"attention_mask": (source_BS != PAD).long()}
    encode = loaded.get_encoder()
    for values in (
        mask | {"input_ids": noise_BS},
        {"input_ids": source_BS},
        mask | {"encoder_outputs": encode(**inputs_of(source_BS))},
    ):
        result = loaded(**values, decoder_input_ids=target_BT)
        assert torch.equal(result.logits, batched.logits)
    for row in range(20):
        n = int((source_BS[row] != PAD).sum())
        source_1S, target_1T = source_BS[row : row + 1, :n], target_BT[row : row + 1]
        alone = loaded(input_ids=source_1S, decoder_input_ids=target_1T)
        assert torch.allclose(alone.logits[0], batched.logits[row], atol=1e-6, rtol=0)
        assert not any(weights[row, ..., n:].any() for weights in recorded.cross_attentions)
    unpadded, expected = (
        loaded(**values, decoder_input_ids=target_BT).logits
        for values in ({"encoder_outputs": encode(noise_BS)}, {"input_ids": noise_BS})
    )
    assert torch.equal(unpadded, expected)


def shapes(attentions):
    return [tuple(weights.shape) for weights in attentions]


@pytest.mark.parametrize("beams", [1, 3])
def test_generation_ends_at_the_last_position(pair, beams):
    _, loaded = pair
    written_BT = loaded.generate(
        **inputs_of(sources(5)), num_beams=beams, max_new_tokens=40, suppress_tokens=[EOS]
    )
    assert written_BT.shape == (5, 12)
    assert not bool((written_BT == EOS).any())
    options = {"num_beams": beams, "suppress_tokens": [EOS]}
    for name, limit, width in (
        ("max_length", None, 12),
        ("max_new_tokens", 4, 5),
        ("max_length", 4, 4),
        ("max_length", 40, 12),
    ):
        limits = {} if limit is None else {name: limit}
        assert loaded.generate(**inputs_of(sources(5)), **options, **limits).shape == (5, width)


@pytest.mark.parametrize("beams", [1, 2])
def test_generate_returns_attention_weights(pair, beams):
    model, loaded = pair
    source_BS = sources(3)
    requested = {"num_beams": beams, "max_new_tokens": 6, "suppress_tokens": [EOS]}
    requested |= {"output_attentions": True, "return_dict_in_generate": True}
    result = loaded.generate(**inputs_of(source_BS), **requested)
    assert result.sequences.shape == (3, 7)
    assert shapes(result.encoder_attentions) == [(3, 4, 11, 11)] * 2
    for step in range(6):
        assert shapes(result.decoder_attentions[step]) == [(3 * beams, 4, 1, step + 1)] * 2
        assert shapes(result.cross_attentions[step]) == [(3 * beams, 4, 1, 11)] * 2
    if beams == 1:
        record = AttentionWeights()
        model(source_BS, result.sequences[:, :-1], record)
        ours = [*record.encoder, *(w[:, :, -1:] for w in (*record.decoder, *record.cross))]
        last = result.decoder_attentions[-1], result.cross_attentions[-1]
        theirs = [*result.encoder_attentions, *itertools.chain(*last)]
        torch.testing.assert_close(theirs, ours, atol=1e-6, rtol=0)
    expected = loaded.generate(**inputs_of(source_BS), use_cache=False, **requested)
    assert torch.equal(expected.sequences, result.sequences)
    assert tuple(expected.decoder_attentions[-1][0].shape) == (3 * beams, 4, 6, 6)


def test_labels_give_the_training_loss(pair):
    model, loaded = pair
    task = load_task("reverse")
    batch = build_held_out_set(task, 40, 1, 10).batch
    ours = model.loss(batch)
    inputs = inputs_of(batch.source_BS)
    result = loaded(**inputs, labels=batch.labels_BT)
    assert torch.allclose(result.loss, ours, atol=1e-6)
    assert torch.allclose(result.logits, model(batch.source_BS, batch.decoder_input_BT), atol=1e-6)
    collated_BT = batch.labels_BT.masked_fill(batch.labels_BT == PAD, -100)
    assert torch.equal(loaded(**inputs, labels=collated_BT).loss, result.loss)
    assert loaded(**inputs, decoder_input_ids=batch.decoder_input_BT).loss is None
    result.loss.backward()
    assert all(weight.grad is not None for weight in loaded.parameters())


@pytest.fixture
def counted(monkeypatch):
    """Count the computations of attention weights and the embedded target positions."""
    counts = {"weights": 0, "positions": 0}
    attend, embed = attention.scaled_dot_product_attention, InputEmbedding.forward

    def attend_and_count(*provided):
        counts["weights"] += 1
        return attend(*provided)

    def embed_and_count(self, tokens_BS, *first, **named):
        counts["positions"] += tokens_BS.shape[1] * (self.side == "target")
        return embed(self, tokens_BS, *first, **named)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", attend_and_count)
    monkeypatch.setattr(InputEmbedding, "forward", embed_and_count)
    return counts


@torch.no_grad()
def test_weights_are_computed_only_on_request(pair, counted):
    _, loaded = pair
    batch = inputs_of(sources(3)) | {"decoder_input_ids": targets(3)}
    loaded(**batch)
    loaded.generate(**inputs_of(sources(3)))
    assert counted["weights"] == 0
    loaded(**batch, output_attentions=True)
    assert counted["weights"] == 6  # two layers: encoder, decoder, cross


@pytest.mark.parametrize("beams", [1, 3])
def test_generation_computes_every_target_position_once(pair, counted, beams):
    _, loaded = pair
    requested = {"num_beams": beams, "suppress_tokens": [EOS]}
    written_BT = loaded.generate(**inputs_of(sources(5)), **requested)
    assert written_BT.shape == (5, 12)
    assert counted["positions"] == 11
    assert torch.equal(
        loaded.generate(**inputs_of(sources(5)), use_cache=False, **requested), written_BT
    )
    assert counted["positions"] == 11 + sum(range(1, 12))


@torch.no_grad()
def test_a_cache_may_be_filled_step_by_step_or_at_once(pair):
    _, loaded = pair
    source, target_BT = inputs_of(sources(4)), targets(4)
    expected = loaded(**source, decoder_input_ids=target_BT)
    assert expected.past_key_values is None
    first = loaded(**source, decoder_input_ids=target_BT[:, :4], use_cache=True)
    assert first.past_key_values.get_seq_length() == 4
    rest = loaded(
        **source, decoder_input_ids=target_BT[:, 4:], past_key_values=first.past_key_values
    )
    assert rest.past_key_values is first.past_key_values
    logits_BTV = torch.cat([first.logits, rest.logits], dim=1)
    assert torch.allclose(logits_BTV, expected.logits, atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match=r"decoder_input_ids has 14 tokens, .* positions for 11"):
        loaded(**source, decoder_input_ids=target_BT, past_key_values=rest.past_key_values)


@pytest.mark.parametrize(
    "changes", [{}, {"position_type": "randomized", "dropout": 0.5}], ids=["learned", "randomized"]
)
def test_generation_in_training_mode_keeps_no_dropout_in_a_cache(changes, tmp_path, counted):
    loaded = save_and_load(build(**changes), tmp_path).train()
    assert loaded.generate(**inputs_of(sources(5)), suppress_tokens=[EOS]).shape == (5, 12)
    assert counted["positions"] == sum(range(1, 12))


@pytest.mark.parametrize("kind", POSITION_TYPES)
@torch.no_grad()
def test_every_kind_of_positions_works_in_half_precision(kind, tmp_path):
    loaded = save_and_load(build(position_type=kind), tmp_path).bfloat16()
    requested = inputs_of(sources(6)) | {"decoder_input_ids": targets(6)}
    outputs = [loaded(**requested, output_attentions=each).logits for each in (True, False)]
    full = loaded.float()(**requested).logits
    for logits_BTV in outputs:
        assert logits_BTV.dtype == torch.bfloat16
        torch.testing.assert_close(logits_BTV.float(), full, atol=0.1, rtol=0)
    written_BT = loaded.bfloat16().generate(**inputs_of(sources(6)), suppress_tokens=[EOS])
    assert written_BT.shape == (6, 12)


def test_too_long_or_missing_values_are_reported(pair):
    _, loaded = pair
    longer_BS = torch.full((1, 12), 5)
    long_source = {"input_ids": longer_BS, "decoder_input_ids": targets(1)}
    for values, message in (
        (long_source, "^input_ids has 12 tokens, but the model has positions for 11"),
        ({"input_ids": sources(1), "labels": longer_BS}, "decoder_input_ids has 12 tokens"),
        ({"input_ids": sources(1)}, "no target"),
        ({"decoder_input_ids": targets(1)}, "no source"),
    ):
        with pytest.raises(ValueError, match=message):
            loaded(**values)
    with pytest.raises(ValueError, match="input_ids has 12 tokens"):
        loaded.generate(**inputs_of(longer_BS), max_new_tokens=2)


def test_the_config_accepts_only_valid_models(tmp_path):
    sizes = {"d_model": 24, "n_heads": 3, "norm_placement": "post", "tie_output_embeddings": True}
    config = PlaygroundConfig(**sizes)
    assert config.to_model_config() == TransformerConfig(**sizes)
    assert (config.hidden_size, config.num_attention_heads, config.vocab_size) == (24, 3, 13)
    config.save_pretrained(tmp_path)
    reloaded = PlaygroundConfig.from_pretrained(tmp_path)
    assert reloaded.to_model_config() == config.to_model_config()
    assert reloaded.tie_word_embeddings is reloaded.is_encoder_decoder is True
    assert reloaded.decoder_start_token_id == SOS
    with pytest.raises(ConfigError, match="n_layers is -4"):
        PlaygroundConfig(n_layers=-4)
    with pytest.raises(ConfigError, match="does not divide"):
        PlaygroundConfig(n_heads=5)


def test_a_new_one_starts_as_the_transformer_does():
    """transformers' own initialization does not change the weights."""
    sizes = {"position_type": "sinusoidal", "sinusoidal_scale": 0.3}
    torch.manual_seed(5)
    ours = TransformerModel(TransformerConfig(**sizes))
    torch.manual_seed(5)
    expected = PlaygroundForSeq2SeqLM(PlaygroundConfig(**sizes))
    loaded = expected.transformer
    assert expected.generate(**inputs_of(sources(2)), suppress_tokens=[EOS]).shape == (2, 12)
    tables = [each.source_embedding.position_embedding for each in (ours, loaded)]
    assert all(map(torch.equal, ours.parameters(), loaded.parameters()))
    assert torch.equal(*tables)


CLASSES = [
    *(PlaygroundForSeq2SeqLM, PlaygroundTorchTransformerForSeq2SeqLM),
    *(PlaygroundDecoderOnlyForCausalLM, PlaygroundEncoderOnlyForMaskedLM),
    PlaygroundRecurrentForSeq2SeqLM,
]


@pytest.mark.parametrize("model_class", CLASSES)
def test_weights_that_no_file_contains_are_those_of_a_new_model(model_class, tmp_path, quiet):
    torch.manual_seed(3)
    new = model_class(model_class.config_class())
    new.config.save_pretrained(tmp_path)
    with torch.no_grad():
        stored = new.get_output_embeddings().bias.fill_(5)
    name = f"{new.base_model_prefix}.output_proj.bias"
    save_file({name: stored}, tmp_path / "model.safetensors", {"format": "pt"})
    torch.manual_seed(3)
    loaded = model_class.from_pretrained(tmp_path)
    for (name, weight), expected in zip(loaded.named_parameters(), new.parameters(), strict=True):
        assert torch.equal(weight, expected), name


def test_another_vocabulary_is_refused_with_what_to_do(pair):
    with pytest.raises(NotImplementedError, match="train a model with more symbols"):
        pair[1].resize_token_embeddings(20)


@pytest.mark.parametrize("kind", POSITION_TYPES)
@torch.no_grad()
def test_padding_before_a_source_is_correct_or_refused(kind, tmp_path):
    loaded = save_and_load(build(position_type=kind), tmp_path).eval()
    source_BS, target_BT = sources(8), targets(8)
    from_left = inputs_of(left_pad(source_BS)) | {"decoder_input_ids": target_BT}
    if loaded.transformer.config.counts_from_first_column:
        with pytest.raises(ValueError, match="pad on the right"):
            loaded(**from_left)
    else:
        expected = loaded(**inputs_of(source_BS), decoder_input_ids=target_BT).logits
        torch.testing.assert_close(loaded(**from_left).logits, expected, **CLOSE)


def test_an_encoder_only_model_refuses_padding_before_a_source():
    loaded = PlaygroundEncoderOnlyForMaskedLM(PlaygroundEncoderOnlyConfig())
    with pytest.raises(ValueError, match="pad on the right"):
        loaded(**inputs_of(left_pad(sources(8))))


@torch.no_grad()
def test_pytorchs_layers_return_their_attention_weights_on_request():
    loaded = PlaygroundTorchTransformerForSeq2SeqLM(PlaygroundTorchTransformerConfig()).eval()
    requested = assert_same_outputs(loaded.network, loaded)
    assert loaded(**requested).cross_attentions is None
