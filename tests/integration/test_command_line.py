import io
import json
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from playground.__main__ import main
from playground.cli.common import reserve_output_dir
from playground.cli.inspect import most_missed_head
from playground.cli.train import build_config
from playground.training.presets import architecture_preset
from tests.support.app_server import wait_for
from tests.support.command_runner import run_here, run_in_interpreter, start_command

TINY = shlex.split(
    "--d-model 16 --n-heads 2 --n-layers 1 --d-ff 16 --batch-size 16 --eval-every 20 "
    "--eval-size 32 --length 4"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tiny checkpoint of 30 steps, and the output of `train --json`."""
    out = tmp_path_factory.mktemp("cli") / "tiny"
    words = ("train", "--task", "reverse", "--max-steps", "30", "--out", out, "--json", *TINY)
    done = run_here(*words)
    assert done.returncode == 0, done.stderr
    return out, done


@pytest.mark.smoke
def test_train_ends_with_one_json_line(trained):
    out, done = trained
    result = json.loads(done.stdout.splitlines()[-1])
    names = "exact_match token_accuracy steps seconds parameters optimizer_groups device checkpoint"
    assert set(result) == set(names.split())
    assert {each["optimizer"] for each in result["optimizer_groups"]} == {"muon", "adamw"}
    assert sum(each["parameters"] for each in result["optimizer_groups"]) == result["parameters"]
    assert (result["steps"], result["device"], result["checkpoint"]) == (30, "cpu", str(out))
    assert 0 <= result["exact_match"] <= result["token_accuracy"] <= 1
    names = "config.json model.safetensors training.safetensors metrics.jsonl"
    assert {path.name for path in out.iterdir()} == set(names.split())
    task = json.loads((out / "config.json").read_text())["task"]
    assert (task["task"], task["min_length"], task["max_length"]) == ("reverse", 4, 4)


@pytest.mark.smoke
def test_evaluate_reproduces_the_scores_of_training(trained):
    out, done = trained
    scored = json.loads(run_here("evaluate", out, "--n", "2000", "--json").stdout.splitlines()[-1])
    assert scored["exact_match"] == json.loads(done.stdout.splitlines()[-1])["exact_match"]
    lines = run_here("evaluate", out).stdout.splitlines()
    assert "held-out sequences" in lines[0]
    assert "length   4" in lines[1]
    assert "exist" in lines[1]


def seed_of(checkpoint):
    return json.loads((checkpoint / "config.json").read_text())["training"]["seed"]


def test_runs_that_start_in_the_same_second_get_separate_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda form: "20260102-030405")
    for seed in (1, 2):
        options = ("--max-steps", 2, "--seed", seed, "--json", *TINY)
        done = run_here("train", *options, PLAYGROUND_CHECKPOINTS=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert seed_of(Path(json.loads(done.stdout.splitlines()[-1])["checkpoint"])) == seed
    folders = sorted((tmp_path / "runs").iterdir())
    assert [seed_of(folder) for folder in folders] == [1, 2]
    assert ["seed1" in folders[0].name, "seed2" in folders[1].name] == [True, True]


def test_a_second_run_with_the_same_out_is_rejected_while_the_first_trains(tmp_path):
    out = tmp_path / "out"
    with reserve_output_dir(out, lambda: None):
        second = run_here("train", "--max-steps", "5", "--out", out, *TINY)
    assert (second.returncode, second.stdout) == (2, "")
    assert f"--out {out} is in use by another command" in second.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.smoke
def test_predict_prints_only_the_output():
    done = run_here("predict", "checkpoints/reverse", "3 1 4", "271")
    assert (done.returncode, done.stdout, done.stderr) == (0, "4 1 3\n1 7 2\n", "")
    assert run_here("predict", "checkpoints/reverse-one-head", "1,2,3,4").stdout == "4 3 2 1\n"


def test_predict_takes_lines_and_prints_json(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("3 1 4\n\n271\n"))
    result = json.loads(run_here("predict", "checkpoints/reverse", "-", "--json").stdout)
    assert [(each["sequence"], each["prediction"], each["correct"]) for each in result] == [
        ("3 1 4", ["4", "1", "3"], True),
        ("271", ["1", "7", "2"], True),
    ]


def test_inspect_command_writes_each_figure_with_its_data(trained, tmp_path):
    checkpoint, _ = trained
    figures = tmp_path / "figures"
    figures.mkdir()
    (figures / "loss.csv").write_text("of another model")
    done = run_here("inspect", checkpoint, "3 1 4", "--out", figures, "--n", "20", "--json")
    assert done.returncode == 0, done.stderr
    assert (figures / "loss.csv").read_text() != "of another model"
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result["files"]) == {path.name for path in figures.iterdir()}
    assert result["most_missed"]["n"] == 20
    assert result["most_missed"]["verdict"]
    stems = {path.stem for path in figures.iterdir()}
    assert {"encoder-attention", "head", "ablation", "loss", "exact-match-by-length"} <= stems
    for stem in stems:
        kinds = {path.suffix for path in figures.glob(f"{stem}.*")}
        assert kinds in ({".png", ".svg", ".pdf", ".csv"}, {".png", ".svg", ".pdf", ".json"})
    weights = json.loads((figures / "cross-attention.json").read_text())["weights"]
    assert all(abs(sum(row) - 1) < 1e-4 for layer in weights for head in layer for row in head)


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        (((2, 4), (0, 1)), "One head has a larger effect than all others"),
        (((2, 4), (1, 3)), "No head differs from all others"),
        (((-1, 4), (0, 1)), "No head has an effect beyond noise"),
        (((2, 4),), "One head has a larger effect than all others"),
    ],
)
def test_a_head_is_the_most_important_one_beyond_noise_only(intervals, expected):
    heads = [
        {"log_probability_drop": (low + high) / 2, "drop_low": low, "drop_high": high}
        for low, high in reversed(intervals)
    ]
    assert most_missed_head(heads) == (heads[-1], expected)


@pytest.mark.parametrize(
    ("arguments", "expected_message"),
    [
        (("train", "--n-heads", "5"), "use one of 1, 2, 4, 8"),
        (("train", "--learning-rate", "nan"), "--learning-rate is nan; it must be a number from"),
        (("train", "--task", "README.md"), "with sources and targets (--columns SOURCE,TARGET)"),
        (("train", "--no-header"), "--header has no effect without a dataset; name the dataset"),
        (("dataset", "README.md", "--columns", "a\nb,c"), "--columns has a line end"),
        (("dataset", "README.md", "--columns", '"a\nb",c'), "columns are a?b, c; name two of"),
        (
            ("report", "checkpoints/reverse", "--out", "r.html", "--name", "a\udcff"),
            "the name has characters that cannot be printed",
        ),
        (("dataset", "README.md", "--split", "test"), "--config and --split select data on the"),
        (
            ("train", "--d-model", "4096", "--n-layers", "48", "--d-ff", "16384"),
            "a smaller --batch-size, --d-model, --d-ff or --length",
        ),
        (
            ("train", "--architecture", "bert", "--preset", "gpt2"),
            "--preset gpt2 is of the architecture gpt2, but architecture is 'bert'; leave one",
        ),
        (
            ("compare", "checkpoints/reverse", "--models", "--n", "3"),
            "Option '--models' requires an argument",
        ),
        (
            ("train", "--resume", "checkpoints/reverse", "--d-model", "32"),
            "--d-model cannot change on --resume",
        ),
        (("train", "--out", "checkpoints/reverse"), "already holds a checkpoint"),
        (("train", "--out", "playground"), "contains other files"),
        (("evaluate", "checkpoints/reverse", "--length", "40"), "allow 10 tokens"),
        (("predict", "checkpoints/reverse", "3 x 4"), "'x' is not a token of this task"),
        (("sing",), "No such command"),
    ],
)
def test_invalid_argument_exits_2_with_one_line_remedy(arguments, expected_message):
    run = run_in_interpreter if arguments == ("sing",) else run_here
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("playground: ")
    assert expected_message in lines[0]


def test_a_missing_gpu_is_reported_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = run_here("train", "--device", "cuda", "--out", tmp_path / "gpu")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "playground: device is 'cuda', but no CUDA GPU is available here; use auto or cpu\n"
    )
    assert not (tmp_path / "gpu").exists()


def catches_sigterm(pid):
    """Return whether a process has a handler for SIGTERM; Python itself installs none."""
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(caught.group(1), 16) >> (signal.SIGTERM - 1) & 1


def test_a_signal_ends_training_with_a_checkpoint(tmp_path):
    words = ["train", "--max-steps", "100000", "--out", tmp_path / "stopped", *TINY]
    with start_command(*words) as run:
        wait_for(lambda: catches_sigterm(run.pid), 100, "the training that handles signals")
        run.send_signal(signal.SIGINT)
        message = run.stderr.read()
        assert run.wait(60) == 130
    assert "stopped by a signal at step" in message
    assert json.loads((tmp_path / "stopped" / "config.json").read_text())["step"] > 0


CTRL_C_AT = {
    "while modules are imported": """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "playground.cli.train":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
""",
    "while the interpreter shuts down": """
class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)
sys.last = Last()
""",
}


@pytest.mark.parametrize(
    ("moment", "code"), [*zip(CTRL_C_AT, (130, 0), strict=True)], ids=[*CTRL_C_AT]
)
def test_ctrl_c_never_ends_a_command_by_the_signal_itself(tmp_path, moment, code):
    (tmp_path / "sitecustomize.py").write_text("import os, signal, sys\n" + CTRL_C_AT[moment])
    done = run_in_interpreter("--version", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (code, "")


def test_a_diverging_run_saves_the_last_finite_weights_and_reports_it(tmp_path):
    diverging = shlex.split(
        "--learning-rate 100 --warmup-steps 0 --lr-schedule constant --max-grad-norm 0 --n-layers 4"
    )
    out = tmp_path / "diverging"
    done = run_here("train", "--max-steps", "500", "--out", out, *TINY, *diverging)
    assert done.returncode == 1
    assert "lower learning_rate" in done.stderr
    assert json.loads((out / "config.json").read_text())["step"] > 0


def test_help_lists_the_commands_in_the_order_of_use_and_in_whole_phrases():
    result = run_here("--help").stdout
    commands = re.findall(
        r"^  ([a-z-]+)  +\S", result[result.index("Commands:") : result.index("Examples:")], re.M
    )
    assert commands == list(main.commands)
    assert commands[:5] == ["app", "train", "dataset", "evaluate", "predict"]
    assert "..." not in result[result.index("Commands:") :]


def test_help_of_train_groups_its_options_and_ends_with_examples():
    result = run_here("train", "--help").stdout
    titles = re.findall(r"^(\w[\w ]*):$", result, re.M)
    assert titles == ["Task", "Model", "Training", "Output and resuming", "Examples"]
    sections = dict(zip(titles, re.split(r"^\w[\w ]*:$", result, flags=re.M)[1:], strict=True))
    assert [
        "--length" in sections["Task"],
        "--n-heads" in sections["Model"],
        "--seed" in sections["Training"],
    ] == [True] * 3
    assert [
        "--out" in sections["Output and resuming"],
        "--help" in sections["Output and resuming"],
    ] == [True] * 2
    assert "or the preset's" not in result


def test_a_dataset_is_validated_trained_on_and_evaluated(tmp_path):
    pairs, out = tmp_path / "pairs.csv", tmp_path / "model"
    pairs.write_text(
        "n,from,to\n" + "".join(f"{i},w{i % 15} w{i // 15},w{i // 15} end\n" for i in range(225))
    )
    here = {"PLAYGROUND_CHECKPOINTS": str(tmp_path / "checkpoints")}
    elsewhere = {"PLAYGROUND_CHECKPOINTS": str(tmp_path / "elsewhere")}
    result = run_here("dataset", pairs, "--columns", "from,to", **here)
    assert result.stdout.splitlines()[1] == "w1 w0 → w0 end"
    assert "225 pairs with 16 different tokens" in result.stderr
    options = ("--columns", "from,to", "--max-steps", "20", "--out", out, *TINY)
    done = run_here("train", "--task", pairs, *options, **here)
    assert done.returncode == 0, done.stderr
    assert "length   2" in run_here("evaluate", out, **here).stdout
    assert run_here("predict", out, "w3 w4", **elsewhere).returncode == 0
    resume = ("train", "--resume", out, "--max-steps", "25")
    for command in (
        ("evaluate", out),
        ("inspect", out, "w3 w4", "--out", tmp_path / "figures"),
        ("report", out, "--out", tmp_path / "report.html"),
        ("compare", out),
        ("finetune", "gpt2", out, "--out", tmp_path / "tuned"),
        resume,
    ):
        missing = run_here(*command, **elsewhere)
        assert (missing.returncode, missing.stdout) == (2, "")
        (line,) = missing.stderr.splitlines()
        assert "is not stored here; add it with `python -m playground dataset FILE`" in line
    assert {path.name for path in tmp_path.iterdir()} == {"pairs.csv", "checkpoints", "model"}
    report = run_here("dataset", pairs, "--columns", "from,to", "--json", **elsewhere)
    assert json.loads(report.stdout)["report"]["selected"] == ["from", "to"]
    assert run_here(*resume, **elsewhere).returncode == 0


@pytest.mark.parametrize("command", ["dataset", "train"])
def test_an_option_leaves_out_unusable_rows(tmp_path, command):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("7,8\n" + "".join(f"{i},{i % 5}\n" for i in range(100, 400)) + "5,\n")
    here = {"PLAYGROUND_CHECKPOINTS": str(tmp_path / "checkpoints")}
    task = ("dataset", pairs) if command == "dataset" else ("train", "--task", pairs, *TINY)
    task += ("--max-steps", "2") if command == "train" else ()
    refused = run_here(*task, "--no-header", **here)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "playground: 1 of 302 rows is unusable: row 302 has no target; correct it, or leave it "
        "out with --skip-unusable\n"
    )
    assert not (tmp_path / "checkpoints" / "rows").exists()
    done = run_here(*task, "--no-header", "--skip-unusable", "--json", **here)
    assert done.returncode == 0, done.stderr
    assert "1 of 302 rows is left out" in done.stderr
    assert "the first line is an example" in done.stderr


def test_an_architecture_has_its_defaults_unless_a_preset_is_chosen():
    settings = {"cell": "lstm", "max_length": 6}
    assert build_config({"architecture": "recurrent", **settings}, None) == architecture_preset(
        "recurrent", **settings, min_length=6
    )
    assert build_config({"architecture": "torch-transformer"}, "one-head").model.n_layers == 1
    assert build_config({}, "bert").architecture == "bert"
