"""The report of a run: one file without requests, in which no input is HTML."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from playground.__main__ import run as command
from playground.architectures import load_architecture
from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.checkpoint import save_checkpoint
from playground.checkpoints.manifest import Manifest, read_manifest
from playground.checkpoints.metrics import read_metrics
from playground.reports import report
from playground.reports.report import CONTENT_SECURITY_POLICY, render_html, write_report
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT

REVERSE = ROOT / "checkpoints/reverse"
VOID = {"meta", "link", "img", "br"}
SCRIPT = '<script>alert("&")</script>'


class Page(HTMLParser):
    """Parse a file: tags, links, text and unclosed elements."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references, self.unclosed, self.text = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        names = ("src", "href", "srcset", "action", "data", "poster")
        self.references += [value for name, value in attributes if name in names]
        if tag not in VOID:
            self.unclosed.append(tag)

    def handle_endtag(self, tag):
        assert tag in VOID or self.unclosed.pop() == tag

    def handle_data(self, data):
        self.text += data + " "


@pytest.fixture(scope="module")
def drawn_shipped():
    """The report of a bundled model, and the arguments of the functions that draw its figures."""
    calls = {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("draw_heads", "draw_head", "training_curve"):
            draw = getattr(report, name)

            def record(*arguments, name=name, draw=draw, **options):
                calls.setdefault(name, []).append(arguments)
                return draw(*arguments, **options)

            monkeypatch.setattr(report, name, record)
        return write_report(REVERSE), calls


@pytest.fixture(scope="module")
def shipped(drawn_shipped):
    return drawn_shipped[0]


@pytest.fixture(scope="module")
def figure_data(drawn_shipped):
    return drawn_shipped[1]


def test_a_report_is_one_file_without_requests(shipped):
    page = Page(shipped)
    assert page.unclosed == []
    assert page.references
    assert all(name.startswith(("#", "data:image/png;base64,")) for name in page.references)
    assert {"script", "link", "iframe", "object"}.isdisjoint(page.tags)
    assert not re.search(r"url\((?!#)|@import|https?:", shipped)
    assert f'content="{CONTENT_SECURITY_POLICY}"' in shipped
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'")
    assert len(shipped) < 500_000


def test_ids_are_unique_and_every_reference_has_its_element(shipped):
    ids = re.findall(r'\bid="([^"]*)"', shipped)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'(?:href="|url\()#([^")]*)[")]', shipped)) <= set(ids)


def test_report_has_the_measured_numbers(shipped):
    manifest, text = read_manifest(REVERSE), " ".join(Page(shipped).text.split())
    scores = manifest.scores
    assert f"of {scores['n']:,} held-out sequences" in text
    assert f"{parameter_count(manifest.config.model):,} parameters" in text
    for name, value in manifest.config.to_flat().items():
        assert re.search(rf"\b{name}\b\s+{re.escape(str(value))}", text), name
    for name, value in manifest.versions.items():
        assert f"{name} {value}" in text
    assert "python -m playground train --task reverse --min-length 1 --length 10" in text
    assert f"Seed {manifest.config.training.seed};" in text


def test_figures_have_the_weights_and_points_of_the_model(figure_data):
    model = read_manifest(REVERSE).config.model
    for weights_LHQM, rows, columns in figure_data["draw_heads"]:
        assert weights_LHQM.shape == (model.n_layers, model.n_heads, len(rows), len(columns))
        assert np.nansum(weights_LHQM, axis=-1) == pytest.approx(1, abs=0.01)
    assert len(figure_data["draw_heads"]) == 3
    decoder_LHQM = figure_data["draw_heads"][2][0]
    assert np.isnan(decoder_LHQM[0, 0]).sum() == np.triu(np.ones(decoder_LHQM.shape[2:]), 1).sum()
    assert figure_data["training_curve"] == [(list(read_metrics(REVERSE)),)]


def test_first_screen_has_the_head_with_the_most_concentrated_weights(shipped, figure_data):
    page = Page(shipped)
    ((head_QM, *_),) = figure_data["draw_head"]
    cross_LHQM = figure_data["draw_heads"][0][0]
    concentration_LH = cross_LHQM.max(-1).mean(-1)
    assert head_QM.max(-1).mean() == concentration_LH.max()
    layer, head = np.argwhere(concentration_LH == concentration_LH.max())[0] + 1
    header = page.text[: page.text.index("Training curves")]
    assert f"Cross-attention, layer {layer}, head {head}:" in header


def test_a_large_figure_is_embedded_as_png(monkeypatch, shipped):
    monkeypatch.setattr(report, "MAX_SVG_BYTES", 30_000)
    page = Page(write_report(REVERSE))
    assert page.unclosed == []
    assert page.tags.count("img") > 0 == Page(shipped).tags.count("img")


def test_input_is_escaped(small_run, tmp_path):
    trainer = Trainer(small_run.replace(max_steps=2))
    save_checkpoint(tmp_path / "small", trainer, list(trainer))
    text = write_report(tmp_path / "small", name=SCRIPT)
    page = Page(text)
    assert "script" not in page.tags
    assert page.text.count(SCRIPT) == 2  # the title and the heading
    assert "held-out sequences" in page.text  # evaluated here


def test_report_command_has_new_steps_and_lists_unrepeated_changes(small_run, tmp_path):
    trainer = Trainer(small_run.replace(max_steps=2))
    lines = [trainer.train_step(), trainer.train_step()]
    trainer.schedule_change("max_steps", 4)
    lines += [trainer.train_step()]
    trainer.schedule_change("learning_rate", 1e-4)
    save_checkpoint(tmp_path / "longer", trainer, [*lines, trainer.train_step()])
    text = Page(write_report(tmp_path / "longer")).text
    assert "--max-steps 4" in text
    message = "that the command does not repeat: from step 4 on, learning_rate was 0.0001."
    assert message in text


def test_a_model_without_attention_and_metrics_has_a_report(small_run, tmp_path):
    sizes = {"max_steps": 1, "max_length": 4, "d_model": 8, "eval_size": 8}
    sizes |= {"architecture": "recurrent", "attention": "none"}
    trainer = Trainer(small_run.from_flat(sizes))
    save_checkpoint(tmp_path / "plain", trainer, [])
    text = write_report(tmp_path / "plain")
    assert Page(text).unclosed == []
    assert "<h2>Attention</h2>" not in text
    assert "Training curves" not in text


def test_wrong_predictions_have_their_target(ages, small_run):
    wrong = {"n": 10, "exact_match": 0.0, "token_accuracy": 0.1}
    lengths = [
        {"length": 1, "n": 0, "available": 0, "exact_match": None, "token_accuracy": None},
        wrong | {"length": 2, "available": 10},
    ]
    scores = wrong | {"by_length": lengths}
    text = render_html(Manifest(small_run, 0, 0.0, "cpu"), ages[0], scores, [], "untrained")
    assert text.count('<span class="wrong">wrong</span>') == 8
    assert "none held out" in text
    assert "0 %" in text
    assert "No single command repeats this training" in text


def test_the_command_writes_a_complete_file_or_none(tmp_path, capsys):
    out = tmp_path / "report.html"
    command(["report", str(REVERSE), "--out", str(out), "--name", "Ours"])
    assert "<h1>Ours</h1>" in out.read_text()
    with pytest.raises(SystemExit) as ended:
        command(["report", str(REVERSE), "--out", str(out)])
    assert ended.value.code == 2
    assert "add --overwrite" in capsys.readouterr().err
    for arguments in (
        ["nothing", "--out", str(tmp_path / "b.html")],
        [str(REVERSE), "--out", str(tmp_path / "no/b.html")],
    ):
        with pytest.raises(SystemExit):
            command(["report", *arguments])
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("architecture", "axes"),
    [
        ("transformer", "Rows: decoder input (queries). Columns: decoder input (keys)"),
        ("encoder-only", "the source, whose positions predict the target"),
        ("bert", "the source, then the masked positions (SOS) that predict the target"),
        ("gpt2", "the source, then the target so far"),
    ],
)
def test_axes_of_an_architecture_with_one_stack_are_its_sequence(small_run, architecture, axes):
    sizes = {"max_length": 4, "d_model": 8, "n_heads": 1, "n_layers": 1}
    config = small_run.from_flat(sizes | {"architecture": architecture})
    scores = {"n": 0, "exact_match": 0.0, "by_length": []}
    model = load_architecture(architecture)(config.model)
    text = render_html(Manifest(config, 0, 0.0, "cpu"), model, scores, [], "untrained")
    assert axes in text
    assert ("Rows: " in text) == (architecture == "transformer")
    is_parallel = architecture in ("encoder-only", "bert")
    assert ("predicted in one forward pass" in text) is is_parallel
    assert ("in free-running generation" in text) is not is_parallel
    assert "all its tokens, with EOS, equal the target" in text
