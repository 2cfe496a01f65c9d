import dataclasses
import json
import signal
import subprocess

import pytest
from click.testing import CliRunner

from playground.__main__ import main
from playground.checkpoints.checkpoint import save_checkpoint
from playground.experiments.claims import CLAIMS
from playground.experiments.replications import replication_config
from playground.training.config import RunConfig
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT, wait_for
from tests.support.command_runner import COMMAND, run_command, run_in_interpreter

TINY = [
    "d_model=16",
    "n_heads=2",
    "n_layers=1",
    "d_ff=16",
    "batch_size=8",
    "eval_size=32",
    "eval_every=20",
]
FATAL = [
    "max_length=4",
    "steps=300",
    "warmup_steps=0",
    "schedule=constant",
    "optimizer=sgd",
    "clip=0",
    *TINY,
]
# some terabytes
HUGE = ["max_length=100", "d_model=4096", "d_ff=16384", "n_layers=6", "batch_size=65536"]


@pytest.fixture
def run_in_process():
    """Run a command in this process with a warm fork server; restore its signal handlers."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield lambda *arguments: CliRunner().invoke(main, [*map(str, arguments)])
    for number, handler in handlers.items():
        signal.signal(number, handler)


def parse_json_output(completed: subprocess.CompletedProcess) -> dict:
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


def test_interrupted_lengths_command_resumes_without_repeated_work(tmp_path):
    out, table = tmp_path / "out", tmp_path / "lengths.csv"
    arguments = (
        "lengths",
        "--schemes",
        "learned",
        "sinusoidal",
        "--seeds",
        1,
        "--length",
        4,
        "--times",
        2,
        "--n",
        20,
    )
    arguments += ("--out", out, "--csv", table, "--json", "--set", "steps=400", *TINY)
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(
            lambda: list(out.glob("runs/*/checkpoints/*/config.json")),
            description="a run that has saved",
        )
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=200)
    assert process.returncode == 130
    assert "the same command continues from here" in message
    started = {path.name for path in out.glob("runs/*")}
    results = parse_json_output(run_in_interpreter(*arguments))
    assert started <= {path.name for path in out.glob("runs/*")}
    assert len(list(out.glob("runs/*"))) == 2
    assert [row["label"] for row in results["rows"]] == ["learned", "sinusoidal"]
    assert [row["n"] for row in results["rows"]] == [1, 1]
    assert results["rows"][0]["untrained"] == {"source": [5, 8], "target": [5, 8]}
    assert {"answers-by-length.png", "answers-by-length.svg", "lengths-heatmap.pdf"} <= {
        path.name for path in out.iterdir()
    }
    assert len(table.read_text().splitlines()) == 1 + 2 * 8
    metrics = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/metrics.jsonl")}
    assert parse_json_output(run_command(*arguments)) == results
    assert {path: path.stat().st_mtime_ns for path in metrics} == metrics


def test_checkpoints_are_evaluated_up_to_their_positions(tmp_path):
    completed = run_command(
        "lengths", "checkpoints/reverse", "checkpoints/copy", "--n", 20, "--json"
    )
    results = parse_json_output(completed)
    assert (
        "checkpoints/reverse has positions for 10 tokens; longer sequences are skipped"
        in completed.stderr
    )
    assert (results["max_length"], [row["label"] for row in results["rows"]]) == (
        10,
        ["reverse", "copy"],
    )
    assert results["rows"][0]["reach"]["median"] == 10
    assert "most often" not in results["summary"]
    assert "No length beyond 10 was evaluated" in results["summary"]


def test_checkpoints_of_different_tasks_and_lengths_are_not_compared(run_in_process, tmp_path):
    fields = {
        "task": "sort",
        "min_length": 1,
        "max_length": 6,
        "max_positions": 15,
        "max_steps": 1,
        "device": "cpu",
    }
    trainer = Trainer(
        RunConfig.from_flat(fields | {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 16})
    )
    save_checkpoint(tmp_path / "sorter", trainer, [trainer.train_step()])
    completed = run_in_process(
        "lengths", "checkpoints/reverse", tmp_path / "sorter", "--n", 20, "--times", 2, "--json"
    )
    results = json.loads(completed.stdout.splitlines()[-1])
    assert results["summary"].startswith(
        "reverse (task reverse): Trained on length 1–10 and evaluated up to 10, reverse keeps 99 %"
    )
    assert (
        "sorter (task sort): Trained on length 1–6 and evaluated up to 12, " in results["summary"]
    )
    assert "most often" not in results["summary"]
    assert results["summary"].endswith(
        "tasks or trained lengths differ, so these results do not compare."
    )
    assert [(row["task"], row["trained"]) for row in results["rows"]] == [
        ("reverse", [1, 10]),
        ("sort", [1, 6]),
    ]


@pytest.mark.smoke
def test_experiment_command_writes_report_figures_and_table(tmp_path):
    arguments = (
        "experiment",
        "--vary",
        "norm=pre,post",
        "--seeds",
        1,
        "--out",
        tmp_path,
        "--json",
        "--set",
        "steps=20",
        "max_length=4",
        *TINY,
    )
    results = parse_json_output(run_command(*arguments))
    assert [variant["values"] for variant in results["variants"]] == [
        {"norm_placement": "pre"},
        {"norm_placement": "post"},
    ]
    assert "single seed" in results["summary"]
    assert (tmp_path / "experiment.png").is_file()


@pytest.mark.parametrize("more_arguments", ["", ",0.001"], ids=["all of them", "one of two"])
def test_divergence_is_a_result(run_in_process, tmp_path, more_arguments):
    completed = run_in_process(
        "experiment",
        "--vary",
        f"learning_rate=100.0{more_arguments}",
        "--seeds",
        1,
        "--out",
        tmp_path,
        "--set",
        *FATAL,
    )
    assert completed.exit_code == 0, completed.output
    assert "learning_rate 100            diverged in 1 of 1 runs" in completed.stdout
    assert (" exact match " in completed.stdout) == bool(more_arguments)
    # runs with points to draw
    assert (tmp_path / "experiment.png").is_file() == bool(more_arguments)


def test_schemes_without_a_finished_run_are_reported(run_in_process, tmp_path):
    arguments = (
        "lengths",
        "--schemes",
        "learned",
        "--seeds",
        1,
        "--length",
        4,
        "--times",
        2,
        "--n",
        20,
        "--out",
        tmp_path,
    )
    completed = run_in_process(*arguments, "--set", "learning_rate=100.0", *FATAL)
    assert completed.exit_code == 0, completed.output
    assert (
        "no run could be evaluated; never trained: positions 5 to 8 of its source"
        in completed.stdout
    )


def test_interrupted_replication_continues_and_is_not_repeated(
    run_in_process, tmp_path, monkeypatch
):
    small = CLAIMS["uva-reversal"].settings | {
        "max_length": 4,
        "min_length": 4,
        "d_model": 16,
        "n_heads": 2,
        "d_ff": 16,
        "max_steps": 40,
    }
    monkeypatch.setitem(
        CLAIMS, "uva-reversal", dataclasses.replace(CLAIMS["uva-reversal"], settings=small)
    )
    trainer = Trainer(replication_config("uva-reversal", 0))
    save_checkpoint(tmp_path / "out", trainer, [trainer.train_step() for _ in range(15)])
    before = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    arguments = ("published", "uva-reversal", "--out", tmp_path / "out", "--json")
    first = run_in_process(*arguments)
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    assert (lines[:15], [json.loads(line)["step"] for line in lines]) == (
        before,
        list(range(1, 41)),
    )
    second = run_in_process(*arguments)
    assert second.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    assert (tmp_path / "out" / "metrics.jsonl").read_text().splitlines() == lines
    other_result = run_in_process(*arguments, "--seed", 1)
    assert (
        other_result.exit_code,
        "already holds a checkpoint with other settings" in other_result.output,
    ) == (
        2,
        True,
    )


TINY_RUN = {
    "min_length": 6,
    "max_length": 6,
    "n_training_sources": 50,
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 16,
    "max_steps": 6,
    "batch_size": 8,
    "eval_every": 3,
    "eval_size": 16,
}


def tiny_claim(claim):
    """Return the claim with a few steps of a small model."""
    if claim.experiment is None:
        lengths = {name: claim.settings[name] for name in ("min_length", "max_length")}
        return dataclasses.replace(claim, settings={**claim.settings, **TINY_RUN, **lengths})
    spec = claim.experiment
    sizes = {name: TINY_RUN[name] for name in ("max_steps", "batch_size", "eval_every", "d_ff")}
    return dataclasses.replace(claim, experiment={**spec, "base": {**spec["base"], **sizes}})


def test_all_claims_are_replicated_one_after_the_other(run_in_process, tmp_path, monkeypatch):
    chosen = {name: tiny_claim(CLAIMS[name]) for name in ("mingpt-sort", "two-layers")}
    monkeypatch.setattr("playground.experiments.claims.CLAIMS", chosen)
    monkeypatch.setattr("playground.experiments.replications.CLAIMS", chosen)
    completed = run_in_process("published", "--all", "--seeds", 2, "--json", "--out", tmp_path)
    first, second = (json.loads(line) for line in completed.stdout.splitlines())
    assert (first["name"], first["passed"], len(first["by_seed"])) == ("mingpt-sort", False, 2)
    assert (second["name"], second["verdict"], len(second["measured"])) == ("two-layers", "fail", 3)
    assert completed.exit_code == 1  # sorting is not learned in 6 steps
    assert {path.name for path in (tmp_path / "mingpt-sort").iterdir()} == {"seed-0", "seed-1"}
    assert "mingpt-sort: Sorting with a tiny GPT, about " in completed.stderr


def test_presets_and_claims_are_listed():
    listed = json.loads(run_in_interpreter("experiment", "--json").stdout)
    assert "recurrent" in [line["name"] for line in listed]
    listed = json.loads(run_in_interpreter("published", "--json").stdout)
    assert "uva-reversal" in [line["name"] for line in listed]


@pytest.mark.parametrize(
    ("arguments", "expected_message"),
    [
        (
            ("lengths", "--schemes", "learned", "backwards"),
            "--schemes backwards: choose one of learned",
        ),
        (
            ("lengths", "--length", 300),
            "5 times --length 300 is 1500 tokens; the maximum is 512",
        ),
        (("lengths", "nowhere"), "nowhere is not a checkpoint"),
        (
            ("lengths", "checkpoints/reverse", "--n", 10),
            "Invalid value for '--n': 10 is not in the range 20<=x<=2000",
        ),
        (
            ("lengths", "checkpoints/reverse", "--times", 0),
            "Invalid value for '--times': 0 is not in the range 1<=x<=20",
        ),
        (("lengths", "--set", *HUGE), "batch_size is 65536: this run needs about"),
        (
            ("experiment", "--vary", "norm=pre,post", "--set", *HUGE),
            "are free; use a smaller batch_size, d_model, d_ff or max_length",
        ),
        (("lengths", "--set", "steps"), "use NAME=VALUE"),
        (
            ("lengths", "checkpoints/reverse", "--set", "nonsense"),
            "--set has no effect on CHECKPOINTs, which are already trained; omit it",
        ),
        (("experiment", "--set", "steps"), "--set has no effect without a QUESTION or --vary"),
        (
            ("experiment", "--vary", "n_heads"),
            "--vary n_heads has no values; use NAME=VALUE,VALUE, such as n_heads=1,2",
        ),
        (("experiment", "--vary", "--seeds", 1), "Option '--vary' requires an argument"),
        (("experiment", "--vary", "n_heads=one"), "n_heads is 'one'; it must be a whole number"),
        (("experiment", "--vary", "wings=1"), "is not a setting of a run"),
        (("experiment", "why"), "choose one of positions, heads"),
        (("published", "bert"), "choose one of uva-reversal"),
        (("published", "uva-reversal", "--all"), "--all includes uva-reversal"),
        (
            ("published", "uva-reversal", "--seed", 1, "--seeds", 2),
            "--seed has no effect with --seeds",
        ),
    ],
)
def test_invalid_commands_fail_with_one_line(arguments, expected_message, tmp_path):
    completed = run_command(
        *arguments,
        *(() if arguments[0] == "lengths" and "nowhere" in arguments else ("--out", tmp_path)),
    )
    assert (completed.returncode, completed.stdout) == (2, "")
    assert expected_message in completed.stderr
    assert len(completed.stderr.splitlines()) == 1
