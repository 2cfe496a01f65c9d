"""Encoder-decoders of transformers: their output and their cross-attention."""

import json
import shutil
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    MarianConfig,
    MarianMTModel,
)

from playground.errors import UserError
from playground.inspection.cross_attention_alignment import diagonal, score_alignment
from playground.inspection.views.attention_maps import unpack_uint16
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.lessons.measurements import MEASURES
from playground.pretrained.attention.translation import MAX_SOURCE_TOKENS
from playground.pretrained.jobs import run
from tests.support.handcrafted_models import reversing_model

SENTENCE = "the dog saw the cat"
SMALL = {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "eos_token_id": 1}
SMALL |= {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64}


def translate(model, text=SENTENCE, progress=None, **fields):
    request = {"model": model, "text": text, **fields}
    return run("translate", request, progress or ProgressReporter())


def unpack(result, kind, n_queries, n_memory):
    """Return the LHQM attention weights of a result."""
    packed = result["attention"][kind]
    shape = packed["layers"], packed["heads"], n_queries, n_memory
    return unpack_uint16(packed["weights"], *shape)


@pytest.mark.smoke
def test_output_tokens_and_probabilities_are_those_of_transformers(tiny_t5):
    result = translate(tiny_t5)
    assert result["output"] == "der hund hat die katze gesehen"
    tokenizer = AutoTokenizer.from_pretrained(tiny_t5)
    model = AutoModelForSeq2SeqLM.from_pretrained(tiny_t5)
    inputs = tokenizer(SENTENCE, return_tensors="pt")
    assert [token["id"] for token in result["source"]] == inputs["input_ids"][0].tolist()
    ids = model.generate(**inputs, do_sample=False, max_new_tokens=30)[0]
    generated = [token["id"] for token in result["generated"]]
    assert [result["start"]["id"], *generated] == ids.tolist()
    with torch.no_grad():
        logits = model(**inputs, decoder_input_ids=ids[None, :-1]).logits[0]
    expected = logits.softmax(-1)[range(len(generated)), generated]
    probabilities = [token["probability"] for token in result["generated"]]
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    first = result["generated"][0]["candidates"]
    assert first[0]["token"] == "▁der"
    probabilities = [token["probability"] for token in first]
    assert probabilities == sorted(probabilities, reverse=True)
    assert result["notes"] == []


def test_attention_weights_of_all_kinds_are_those_of_transformers(tiny_t5):
    result = translate(tiny_t5)
    model = AutoModelForSeq2SeqLM.from_pretrained(tiny_t5, attn_implementation="eager")
    source = torch.tensor([[token["id"] for token in result["source"]]])
    target = [result["start"]["id"], *(token["id"] for token in result["generated"])][:-1]
    with torch.no_grad():
        expected = model(
            input_ids=source, decoder_input_ids=torch.tensor([target]), output_attentions=True
        )
    n_target, n_source = len(target), source.shape[1]
    for kind, layers, shape in (
        ("cross", expected.cross_attentions, (n_target, n_source)),
        ("encoder", expected.encoder_attentions, (n_source, n_source)),
        ("decoder", expected.decoder_attentions, (n_target, n_target)),
    ):
        np.testing.assert_allclose(unpack(result, kind, *shape), torch.cat(layers), atol=6e-4)


def test_a_lesson_compares_the_translation_with_the_own_model(tiny_t5):
    run = SimpleNamespace(subject=reversing_model())
    result = MEASURES["pretrained_alignment"]([run], {"pretrained_result": translate(tiny_t5)})
    assert "der hund hat die katze gesehen" in result["explanation"]
    pretrained = result["figures"][2]
    assert pretrained["columns"] == ["the", "dog", "saw", "the", "cat", "</s>"]
    assert [sum(row) for row in pretrained["weights"]] == pytest.approx([1] * 7, abs=0.01)


def test_alignment_starts_after_the_task_prefix(tiny_t5, tmp_path):
    folder = shutil.copytree(tiny_t5, tmp_path / "with-prefix")
    config = json.loads((folder / "config.json").read_text())
    prefixes = {"summarization": "four five: ", "translation": "one two "}
    config["task_specific_params"] = {name: {"prefix": text} for name, text in prefixes.items()}
    (folder / "config.json").write_text(json.dumps(config))
    result = translate(str(folder), "one two the dog saw the cat", new_tokens=6)
    n_source = len(result["source"])
    assert (result["prefix_tokens"], n_source) == (2, 8)
    weights = unpack(result, "cross", len(result["generated"]), n_source)
    expected = score_alignment(weights, diagonal(len(result["generated"]), n_source, 2), 2)
    np.testing.assert_allclose(result["alignment"]["scores"], expected["scores"], atol=2e-3)
    assert translate(str(folder))["prefix_tokens"] == 0


def test_bart_may_have_different_encoder_and_decoder_sizes(tiny_t5, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_t5)
    ids = dict.fromkeys(("bos_token_id", "decoder_start_token_id", "forced_eos_token_id"), 1)
    sizes = SMALL | {"encoder_layers": 3, "encoder_attention_heads": 2, "pad_token_id": 0}
    config = BartConfig(vocab_size=len(tokenizer), **sizes, **ids)
    torch.manual_seed(0)
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    result = translate(str(tmp_path), new_tokens=4)
    shapes = {kind: (x["layers"], x["heads"]) for kind, x in result["attention"].items()}
    assert shapes == {"cross": (2, 4), "encoder": (3, 2), "decoder": (2, 4)}
    assert len(result["generated"]) <= 4


def test_output_that_reaches_the_limit_has_a_note(tiny_t5):
    result = translate(tiny_t5, new_tokens=2)
    assert len(result["generated"]) == 2
    assert result["notes"] == ["The output stops at the limit of 2 tokens."]


def test_other_architectures_and_long_texts_are_rejected(tiny_t5, tiny_gpt2):
    with pytest.raises(UserError, match="is not an encoder-decoder; choose a model such as"):
        translate(tiny_gpt2)
    with pytest.raises(UserError, match=f"the maximum is {MAX_SOURCE_TOKENS}; shorten it"):
        translate(tiny_t5, "one two three " * 22)
    with pytest.raises(UserError, match="new_tokens"):
        translate(tiny_t5, new_tokens=0)


@pytest.mark.skipif(find_spec("sentencepiece") is not None, reason="sentencepiece is installed")
def test_marian_without_sentencepiece_names_the_package_to_install(tmp_path):
    sizes = SMALL | {"vocab_size": 4, "encoder_layers": 1, "encoder_attention_heads": 1}
    config = MarianConfig(pad_token_id=3, decoder_start_token_id=3, **sizes)
    MarianMTModel(config).save_pretrained(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 0, "</s>": 1, "<unk>": 2, "<pad>": 3}')
    (tmp_path / "source.spm").touch()
    (tmp_path / "target.spm").touch()
    with pytest.raises(UserError, match="run pip install sentencepiece and restart"):
        translate(str(tmp_path))


def test_cancellation_stops_the_generation(tiny_t5):
    progress = ProgressReporter()
    progress.progress = lambda n_steps, *_: progress.cancelled.set() if n_steps == 2 else None
    with pytest.raises(JobCancelled):
        translate(tiny_t5, progress=progress)
