"""A run's report: everything in one file, nothing asked of anybody, nothing that people wrote
taken for HTML.
"""

import re
from html.parser import HTMLParser

import pytest

from playground.__main__ import run as command
from playground.checkpoints.checkpoint import read_metrics, save_checkpoint
from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.figures.report import CONTENT_SECURITY_POLICY, render_html, write_report
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT

REVERSE = ROOT / "checkpoints/reverse"
VOID = {"meta", "link", "img", "br", "line", "rect", "circle", "polyline"}
SCRIPT = '<script>alert("&")</script>'


class Seen(HTMLParser):
    """Which tags a file has, what it refers to, and whether every tag that is opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.refers, self.open, self.text = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.refers += [
            value
            for name, value in attributes
            if name in ("src", "href", "srcset", "action", "data", "poster")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + " "


@pytest.fixture(scope="module")
def shipped():
    return write_report(REVERSE)


def test_a_report_is_one_whole_file_that_asks_nobody_for_anything(shipped):
    seen = Seen(shipped)
    assert seen.open == []
    assert seen.refers == []
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(seen.tags)
    assert not re.search(r"url\(|@import|https?:", shipped)
    assert f'content="{CONTENT_SECURITY_POLICY}"' in shipped
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'")


def test_it_says_what_was_measured(shipped):
    manifest, text = read_manifest(REVERSE), " ".join(Seen(shipped).text.split())
    scores = manifest.scores
    assert f"of {scores['n']:,} held-out sequences" in text
    assert f"{manifest.config.model.parameter_count():,} parameters" in text
    for name, value in manifest.config.to_flat().items():
        assert re.search(rf"\b{name}\b\s+{re.escape(str(value))}", text), name
    for name, value in manifest.versions.items():
        assert f"{name} {value}" in text
    assert "python -m playground train --task reverse --min-length 1 --length 10" in text
    assert f"Seed {manifest.config.training.seed};" in text


def test_every_head_has_a_map_whose_cells_are_its_weights(shipped):
    heads = re.findall(r"layer (\d), head (\d)</div><svg.*?</svg>", shipped)
    model = read_manifest(REVERSE).config.model
    assert len(heads) == 3 * model.n_layers * model.n_heads
    drawing = re.search(r"layer 2, head 4</div>(<svg.*?</svg>)", shipped).group(1)
    rows = {}
    for y, opacity in re.findall(
        r'y="([\d.]+)" width="15" height="15" fill-opacity="([\d.]+)"', drawing
    ):
        rows[y] = rows.get(y, 0) + float(opacity)
    assert len(rows) > 3
    # cells below half a percent are left out
    assert all(0.9 < total < 1.01 for total in rows.values())


def test_the_curve_has_the_points_of_the_run(shipped):
    steps = len(read_metrics(REVERSE))
    loss, exact, tokens = re.findall(r'<polyline class="\w+" points="([^"]*)"', shipped)
    assert len(loss.split()) == steps
    assert (
        len(exact.split())
        == len(tokens.split())
        == sum("exact_match" in line for line in read_metrics(REVERSE))
    )


def test_what_people_wrote_is_shown_as_they_wrote_it_and_is_no_html(small_run, tmp_path):
    trainer = Trainer(small_run.replace(max_steps=2))
    save_checkpoint(tmp_path / "small", trainer, list(trainer))
    written = write_report(tmp_path / "small", name=SCRIPT)
    seen = Seen(written)
    assert "script" not in seen.tags
    assert seen.text.count(SCRIPT) == 2  # the title and the heading
    assert "held-out sequences" in seen.text  # scored here, for this checkpoint has no scores


def test_report_command_has_new_steps_and_lists_unrepeated_changes(small_run, tmp_path):
    trainer = Trainer(small_run.replace(max_steps=2))
    lines = [trainer.train_step(), trainer.train_step()]
    trainer.schedule_change("max_steps", 4)
    lines += [trainer.train_step()]
    trainer.schedule_change("learning_rate", 1e-4)
    save_checkpoint(tmp_path / "longer", trainer, [*lines, trainer.train_step()])
    text = Seen(write_report(tmp_path / "longer")).text
    assert "--max-steps 4" in text
    assert (
        "Changes during the run that the command does not repeat: from step 4 on, learning_rate "
        "was 0.0001." in text
    )


def test_a_model_that_attends_to_nothing_and_has_no_curve_has_a_report_too(small_run, tmp_path):
    config = small_run.from_flat(
        {
            "architecture": "recurrent",
            "attention": "none",
            "max_steps": 1,
            "max_length": 4,
            "d_model": 8,
            "eval_size": 8,
        }
    )
    trainer = Trainer(config)
    save_checkpoint(tmp_path / "plain", trainer, [])
    written = write_report(tmp_path / "plain")
    assert Seen(written).open == []
    assert "<h2>Attention</h2>" not in written
    assert "Training curves" not in written


def test_wrong_answers_are_told_with_the_right_ones(ages, small_run):
    from playground.checkpoints.manifest import Manifest

    scores = {
        "n": 10,
        "exact_match": 0.0,
        "token_accuracy": 0.1,
        "by_length": [
            {"length": 1, "n": 0, "available": 0, "exact_match": None, "token_accuracy": None},
            {"length": 2, "n": 10, "available": 10, "exact_match": 0.0, "token_accuracy": 0.1},
        ],
    }
    text = render_html(Manifest(small_run, 0, 0.0, "cpu"), ages[0], scores, [], "untrained")
    assert text.count('<span class="wrong">wrong</span>') == 8
    assert "none held out" in text
    assert "0 %" in text
    assert "No single command repeats this training" in text


def test_the_command_writes_it_whole_or_not_at_all(tmp_path, capsys):
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


def test_a_broken_checkpoint_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("transformer", "Rows: generated tokens (queries). Columns: decoder input (keys)"),
        ("encoder-only", "the source, whose positions predict the target"),
        ("bert", "the source, then the masked positions (SOS) that predict the target"),
        ("gpt2", "the source, then the target so far"),
    ],
)
def test_the_axes_of_a_family_with_one_stack_are_its_one_row(small_run, family, says):
    from playground.architectures import load_architecture
    from playground.checkpoints.manifest import Manifest

    config = small_run.from_flat(
        {"architecture": family, "max_length": 4, "d_model": 8, "n_heads": 1, "n_layers": 1}
    )
    scores = {"n": 0, "exact_match": 0.0, "by_length": []}
    text = render_html(
        Manifest(config, 0, 0.0, "cpu"),
        load_architecture(family)(config.model),
        scores,
        [],
        "untrained",
    )
    assert says in text
    assert ("Rows: " in text) == (family == "transformer")
