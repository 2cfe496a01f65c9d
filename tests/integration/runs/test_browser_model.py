"""The page and the server give one answer to a text. Node runs the engine of the page."""

import json
import random
import shutil
import subprocess
from dataclasses import replace

import pytest
import torch

from playground.checkpoints.checkpoint import build_model, weights_by_name
from playground.checkpoints.tensors import serialize_tensors
from playground.inspection.inspected_model import InspectedModel, load_inspected_model
from playground.inspection.views import render_view
from playground.runs.browser_model import describe_model, runs_in_browser
from playground.runs.snapshot import SnapshotBuilder
from playground.training.config import RunConfig
from playground.ui.page import STATIC_DIR
from tests.support.app_server import BUNDLED_CHECKPOINTS, ROOT
from tests.support.small_configs import small_config

N_TEXTS = 200
UNTRAINED = {
    "decoder-only": {"position_type": "rope", "n_kv_heads": 1},
    "encoder-only": {"task": "addition", "n_symbols": 10, "position_type": "t5"},
    "transformer": {"task": "brackets", "position_type": "alibi", "share_embeddings": True},
}
QUERY = {"kind": "decoder", "layer": 0, "head": 0, "query": 1}
SCRIPT = """
import { readFileSync } from "node:fs";
const [engine, folder, query] = process.argv.slice(1),
  { BrowserModel } = await import(engine),
  read = name => readFileSync(`${folder}/${name}`),
  model = new BrowserModel(JSON.parse(read("model.json")), new Uint8Array(read("weights")).buffer),
  answers = JSON.parse(read("texts.json")).map(text => model.answer(text, [], "zero")),
  scores = model.model.kinds.length > 1 ? model.scores(JSON.parse(query)) : null;
console.log(JSON.stringify({ answers, scores },
  (_, value) => ArrayBuffer.isView(value) ? [...value] : value));
"""


def random_texts(task):
    """Return inputs of the task, and texts that are too long, empty, or have foreign tokens."""
    draw, symbols = random.Random(0), list(task.vocabulary.symbols)
    indices = torch.tensor([draw.randrange(200) for _ in range(N_TEXTS // 2)])
    texts = ["", " , ", *map(task.vocabulary.decode, task.enumerate_sources(indices, 6).tolist())]
    while len(texts) < N_TEXTS:
        length = draw.choice([1, 2, 3, 5, 8, 10, 13])
        texts.append(draw.choices([*symbols, "?"], [20] * len(symbols) + [1], k=length))
    return [draw.choice(["", " ", ", "]).join(each) for each in texts]


def subject_of(name):
    if name in BUNDLED_CHECKPOINTS:
        return load_inspected_model(ROOT / "checkpoints" / name)
    torch.manual_seed(0)
    config = small_config(name, min_length=3, max_length=8, max_positions=9, **UNTRAINED[name])
    return InspectedModel.from_model(config, build_model(config))


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize("name", [*BUNDLED_CHECKPOINTS, *UNTRAINED])
def test_the_page_and_the_server_give_one_answer(name, tmp_path):
    subject = subject_of(name)
    texts = random_texts(subject.task)
    (tmp_path / "model.json").write_text(json.dumps(describe_model(subject)))
    weights = serialize_tensors(weights_by_name(subject.model))
    (tmp_path / "weights").write_bytes(weights)
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    engine = (STATIC_DIR / "engine" / "browser_model.js").as_uri()
    command = [
        "node",
        "--input-type=module",
        "-e",
        SCRIPT,
        engine,
        str(tmp_path),
        json.dumps(QUERY),
    ]
    result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    builder, n_answers = SnapshotBuilder(subject.task, subject.config, torch.device("cpu")), 0
    for text, answer in zip(texts, result["answers"], strict=True):
        expected = builder.predict(subject.model, text)
        assert (answer is None) == ("error" in expected), (text, expected)
        if answer is None:
            continue
        n_answers, last = n_answers + 1, text
        for field in ("prediction", "target", "note"):
            assert answer[field] == expected[field], (text, field)
        assert_equal_pictures(answer["forward_pass"], expected["forward_pass"])
    assert n_answers > N_TEXTS / 4
    if result["scores"]:
        request = {"text": last, "options": QUERY} | QUERY
        view = render_view(subject, "attention-scores", request)
        for field, value in result["scores"].items():
            assert_near(value, view[field], 1e-4)


def assert_equal_pictures(actual, expected):
    assert actual["source"] == expected["source"]
    assert actual["axes"] == expected["axes"]
    probe = expected["probe"]
    assert actual["probe"] == probe | {"probability": actual["probe"]["probability"]}
    assert_near(actual["probe"]["probability"], probe["probability"], 1)
    assert actual["attention"].keys() == expected["attention"].keys()
    for kind, layers in expected["attention"].items():
        assert_near(actual["attention"][kind], layers, 1)
    for name, value in expected["contributions"].items():
        assert actual["contributions"][name] == pytest.approx(value, abs=1e-3)


def assert_near(actual, expected, tolerance):
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for each in zip(actual, expected, strict=True):
            assert_near(*each, tolerance)
    else:
        assert actual == pytest.approx(expected, abs=tolerance)


def test_the_page_leaves_large_and_other_models_to_the_server():
    config = small_config("transformer")
    assert runs_in_browser(config)
    assert not runs_in_browser(small_config("gru-dot"))
    assert not runs_in_browser(RunConfig.from_flat({"d_model": 512, "d_ff": 2048}))
    long = {"min_length": 400, "max_length": 500, "d_model": 128}
    assert not runs_in_browser(RunConfig.from_flat(long))
    without_eos = replace(config.task, min_length=4, max_length=4, predict_eos=False)
    assert not runs_in_browser(replace(config, task=without_eos))
