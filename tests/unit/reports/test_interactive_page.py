"""A model as one page: its script is complete, its texts are data; some models are refused."""

import base64
import hashlib
import json
import re

import pytest
import torch
from markupsafe import escape
from safetensors.torch import load as read_tensors

from playground.__main__ import run as command
from playground.checkpoints.checkpoint import save_checkpoint
from playground.errors import UserError
from playground.reports import interactive_page
from playground.reports.interactive_page import STATIC, bundle_modules, write_page
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT

ONE_HEAD = ROOT / "checkpoints/reverse-one-head"
HOSTILE = '</script><b>"&amp;'
SMALL = {"max_steps": 1, "max_length": 4, "d_model": 8, "n_layers": 1, "eval_size": 8}


@pytest.fixture(scope="module")
def page():
    return write_page(ONE_HEAD, name=HOSTILE)


@pytest.fixture
def saved(small_run, tmp_path):
    """Return a function that saves a model of one step with these settings."""

    def save(change=lambda model: None, **settings):
        trainer = Trainer(small_run.from_flat(SMALL | settings))
        change(trainer.model)
        save_checkpoint(tmp_path / "model", trainer, [])
        return tmp_path / "model"

    return save


def element(page, name):
    return re.search(rf'id="{name}">(.*?)</script>', page, re.DOTALL)[1]


def test_the_policy_allows_the_script_and_the_style_and_nothing_else(page):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    texts = [
        re.search(rf"<{tag}>(.*?)</{end}>", page, re.DOTALL)[1]
        for tag, end in (('script type="module"', "script"), ("style", "style"))
    ]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    addresses = re.findall(r"\b(?:src|href)=|url\(", page.replace(texts[0], ""))
    assert addresses == ["href="]  # of the playground


def test_names_are_text_and_never_markup(page):
    assert HOSTILE not in page
    assert page.count(escape(HOSTILE)) == 2  # title and heading
    assert page.count("<script") == 3


def test_tokens_are_data_and_never_markup(tmp_path):
    pairs = tmp_path / "pairs.tsv"
    tokens = ["</script>", "<!--", "&lt;"]
    rows = [f"{a} {b}\t{b} {a}" for a in tokens for b in [*tokens, *"abcdefghij"]]
    pairs.write_text("\n".join(rows))
    out = str(tmp_path / "model")
    command(["train", "--task", str(pairs), "--words", "--max-steps", "1", "--out", out])
    page = write_page(tmp_path / "model")
    assert set(tokens) <= set(json.loads(element(page, "data"))["symbols"])
    assert page.count("<script") == page.count("</script>") == 3
    assert "<!--" not in page


def test_weights_are_those_of_the_checkpoint_in_half_precision(page):
    weights = read_tensors(base64.b64decode(element(page, "weights")))
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    assert sum(tensor.numel() for tensor in weights.values()) == 87_885


def test_the_curve_ends_at_the_step_of_the_weights(tmp_path):
    lines = [{"step": step, "loss": 1.0, "exact_match": step / 400} for step in range(199, 203)]
    incomplete = '{"step": 201, "lo'  # as a running or killed process leaves it
    (tmp_path / "metrics.jsonl").write_text("\n".join([*map(json.dumps, lines), incomplete]))
    page = write_page(ONE_HEAD, tmp_path)
    assert re.search(r'points="([^"]*)"', page)[1].split() == ["199.0,26.12", "200.0,26.0"]
    assert "Training, up to step 200:" in page


def test_the_page_names_the_instance_that_made_it(monkeypatch):
    monkeypatch.setenv("PLAYGROUND_URL", "https://a.org/playground")
    assert 'href="https://a.org/playground"' in write_page(ONE_HEAD)


def test_a_model_that_is_often_wrong_keeps_its_precision(saved):
    weights = read_tensors(base64.b64decode(element(write_page(saved()), "weights")))
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"architecture": "recurrent", "attention": "none"},
            "Transformer, Decoder only or Encoder only, not Recurrent; choose another",
        ),
        ({"predict_eos": False, "min_length": 4}, "trained without EOS"),
    ],
)
def test_what_the_page_cannot_run_is_refused(saved, settings, reason):
    with pytest.raises(UserError, match=reason):
        write_page(saved(**settings))


def test_a_large_model_is_refused(saved, monkeypatch):
    monkeypatch.setattr(interactive_page, "MAX_PARAMETERS", 100)
    with pytest.raises(UserError, match=r"a page has at most 100; choose a smaller"):
        write_page(saved())


def test_weights_that_are_not_finite_are_refused(saved):
    def spoil(model):
        next(model.parameters()).data[0, 0] = float("nan")

    with pytest.raises(UserError, match="holds NaN or infinity"):
        write_page(saved(spoil))


def test_the_command_writes_a_complete_file_or_none(tmp_path, capsys):
    out = tmp_path / "page.html"
    command(["export-page", str(ONE_HEAD), "-o", str(out), "--json"])
    expected = {"page": str(out), "bytes": out.stat().st_size, "step": 200}
    assert json.loads(capsys.readouterr().out) == expected
    for arguments in ([str(ONE_HEAD), "-o", str(out)], ["nothing", "-o", str(tmp_path / "b")]):
        with pytest.raises(SystemExit) as ended:
            command(["export-page", *arguments])
        assert ended.value.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Return a function that writes modules and bundles the first one."""
    monkeypatch.setattr(interactive_page, "STATIC", tmp_path)

    def bundle(entry, **others):
        for name, code in {"entry": entry, **others}.items():
            (tmp_path / f"{name}.js").write_text(code)
        return bundle_modules(tmp_path / "entry.js")

    return bundle


OTHER = "const a = 1;\nexport const b = 2;\nexport { a as c };\n"


def test_modules_are_joined_once_and_in_the_order_of_need(modules):
    text = modules(
        'import { b, c as d } from "./other.js";\nimport {\n  e,\n} from "./third.js";\nb + d;\n',
        other=OTHER,
        third='import { b } from "./other.js";\nexport function e() {\n  return b;\n}\n',
    )
    names = re.findall(r"^const module_(\w+) =", text, re.MULTILINE)
    assert names == ["other_js", "third_js", "entry_js"]
    assert "const { b, c: d } = module_other_js;" in text
    assert "return { b, c: a };" in text


@pytest.mark.parametrize(
    "form",
    [
        *('import other from "./other.js";', 'import * as other from "./other.js";'),
        *('import "./other.js";', 'import { missing } from "./other.js";'),
        *("import { b } from './other.js';", 'const other = await import("./other.js");'),
        *("const here = import.meta.url;", "export default 1;", "export let x = 1;"),
        *('export * from "./other.js";', 'export { b } from "./other.js";'),
        *('const end = "</script>";', 'const comment = "<!--";'),
    ],
)
def test_forms_that_the_bundler_does_not_know_are_refused(modules, form):
    with pytest.raises(ValueError, match=r"entry\.js"):
        modules(form + "\n", other=OTHER)


def test_a_second_name_of_one_declaration_is_refused_where_it_is_imported(modules):
    with pytest.raises(ValueError, match="does not export"):
        modules('import { y } from "./other.js";\n', other="export const x = 0,\n  y = 1;\n")


def test_every_module_of_engine_and_export_is_in_the_page(page):
    app_files = ("views.js", "worker.js")
    of_the_app = {STATIC / "engine" / name for name in app_files}
    engine = {*(STATIC / "engine").glob("*.js")} - of_the_app
    for path in [*engine, *(STATIC / "export").glob("*.js")]:
        assert f"// {path.relative_to(STATIC)}\n" in page, path.name


def test_the_first_examples_stand_for_all_lengths(page):
    examples = json.loads(element(page, "data"))["examples"]
    lengths = [len(example["source"]) for example in examples]
    assert abs(sum(lengths[:32]) / 32 - sum(lengths) / len(lengths)) < 1
