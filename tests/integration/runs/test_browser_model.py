"""The page and the server give one answer to a text. Node runs the engine of the page."""

import base64
import json
import random
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import torch

from playground.checkpoints.checkpoint import build_model, weights_by_name
from playground.checkpoints.tensors import serialize_tensors
from playground.inspection.ablation import Ablation
from playground.inspection.inspected_model import InspectedModel, load_inspected_model
from playground.runs import browser_model
from playground.runs.browser_model import describe_model, runs_in_browser
from playground.runs.snapshot import SnapshotBuilder
from playground.training.run_config import RunConfig
from playground.ui.page import STATIC_DIR
from tests.support.app_server import BUNDLED_CHECKPOINTS, ROOT
from tests.support.inspectors import render_view, respond
from tests.support.small_configs import small_config

N_TEXTS = 200
N_EXAMPLES = 8  # of a table of ablations
UNTRAINED = {
    "decoder-only": {"position_type": "rope", "n_kv_heads": 1},
    "encoder-only": {"task": "addition", "n_symbols": 10, "position_type": "t5"},
    "transformer": {"task": "brackets", "position_type": "alibi", "share_embeddings": True},
}
QUERY = {"kind": "decoder", "layer": 0, "head": 0, "query": 1}
SCRIPT = """
import { readFileSync } from "node:fs";
const [engine, folder, query] = process.argv.slice(1),
  { BrowserModel } = await import(`${engine}/../shared/browser_model.js`),
  { attentionView, listAblations } = await import(`${engine}/../inspect/engine_views.js`),
  read = name => readFileSync(`${folder}/${name}`),
  model = new BrowserModel(JSON.parse(read("model.json")), new Uint8Array(read("weights")).buffer),
  texts = JSON.parse(read("texts.json")),
  answers = texts.map(text => model.answer(text, [], "zero")),
  isSingle = model.model.kinds.length === 1,
  scores = isSingle ? null : model.scores(JSON.parse(query)),
  { kinds } = model.model,
  views = [false, true].map(isForced => texts.filter((_, i) => i % 2 === 0).map((text, i) => {
    const answer = model.inspect(text, isForced);
    return answer && attentionView(answer, kinds[i % kinds.length]);
  })),
  n = model.description.examples.length;
function score(off, method) {
  let right = 0, logProbability = 0;
  for (let at = 0; at < n;) {
    const piece = model.count(at, n, off, method, n);
    right += piece.right;
    logProbability += piece.logProbability;
    at = piece.next;
  }
  return [right / n, logProbability / n];
}
const tables = isSingle ? [] : ["zero", "mean", "resample"].flatMap(method =>
  ["single", "groups", "keep"].map(set => [method, set, Object.fromEntries(
    listAblations(model.components(), set, method)
      .map(({ name, off }) => [name, score(off, method)]))]));
console.log(JSON.stringify({ answers, scores, views, tables },
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
def test_the_page_and_the_server_give_one_answer(name, tmp_path, monkeypatch):
    subject = subject_of(name)
    texts = random_texts(subject.task)
    monkeypatch.setattr(browser_model, "NUM_EXAMPLES", N_EXAMPLES)
    (tmp_path / "model.json").write_text(json.dumps(describe_model(subject)))
    weights = serialize_tensors(weights_by_name(subject.model))
    (tmp_path / "weights").write_bytes(weights)
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    engine = (STATIC_DIR / "engine").as_uri()
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
    builder, n_answers = SnapshotBuilder(subject.config), 0
    for text, answer in zip(texts, result["answers"], strict=True):
        expected = respond(builder.predict, subject.model, text)
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
    for mode, answers in zip(("free-running", "teacher-forced"), result["views"], strict=True):
        for text, view in zip(texts[::2], answers, strict=True):
            if view:
                assert_equal_maps(view, subject, {"text": text, "mode": mode, "kind": view["kind"]})
    for method, which, table in result["tables"]:
        effects = Ablation(subject, N_EXAMPLES).rank(which, method)
        assert {effect.name for effect in effects} == set(table)
        for effect in effects:
            expected = [effect.ablated.exact_match, effect.ablated.log_prob]
            assert table[effect.name] == pytest.approx(expected, abs=1e-4), (method, effect.name)


def assert_equal_maps(actual, subject, request):
    expected = render_view(subject, "attention", request)
    for field in ("kind", "kinds", "rows", "columns", "prediction", "target", "note"):
        assert actual[field] == expected[field], (field, request)
    shape = expected["layers"], expected["heads"], -1
    weights = np.frombuffer(base64.b64decode(expected["weights"]), "<i2").reshape(shape)
    np.testing.assert_allclose(actual["weights"], weights, atol=1)


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
