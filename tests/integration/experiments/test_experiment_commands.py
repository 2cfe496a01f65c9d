import json
import shlex
import signal
import subprocess

import pytest
from click.testing import CliRunner

from playground.__main__ import main, run
from playground.cli.experiments import build_spec
from playground.runs.storage_folder import locked_storage
from tests.support.app_server import wait_for
from tests.support.command_runner import run_command, run_in_interpreter, start_command

TINY = shlex.split(
    "d_model=16 n_heads=2 n_layers=1 d_ff=16 batch_size=8 eval_size=32 eval_every=20 max_length=4"
)
DIVERGING = shlex.split(
    "max_steps=300 warmup_steps=0 lr_schedule=constant optimizer=sgd max_grad_norm=0"
)
# some terabytes
HUGE = shlex.split("max_length=100 d_model=4096 d_ff=16384 n_layers=6 batch_size=65536")


def parse_json_output(completed: subprocess.CompletedProcess) -> dict:
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


def test_interrupted_command_resumes_without_repeated_work(tmp_path):
    out, table = tmp_path / "out", tmp_path / "lengths.csv"
    arguments = ("experiment", "positions", "--vary", "position_type=learned,sinusoidal")
    arguments += ("--seeds", 1, "--out", out, "--csv", table, "--json")
    arguments += ("--set", "max_steps=400", *TINY)
    with start_command(*arguments) as process:
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
    assert len(list(out.glob("runs/[!.]*"))) == 2
    assert [row["label"] for row in results["rows"]] == ["learned", "sinusoidal"]
    assert [row["n"] for row in results["rows"]] == [1, 1]
    assert len(table.read_text().splitlines()) == 1 + 2 * 20
    metrics = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/metrics.jsonl")}
    assert parse_json_output(run_command(*arguments)) == results
    assert {path: path.stat().st_mtime_ns for path in metrics} == metrics


@pytest.fixture
def run_in_process(monkeypatch):
    """Run a command in this process with a warm fork server; restore its signal handlers.

    The limits of a server are reached, because a command has none.
    """
    monkeypatch.setenv("PLAYGROUND_LIMITS", "experiments.per-owner=0,runs.per-owner=0")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield lambda *arguments: CliRunner().invoke(main, [*map(str, arguments)])
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.smoke
def test_a_diverged_run_is_part_of_the_report(run_in_process, tmp_path):
    arguments = ("experiment", "--vary", "learning_rate=100.0,0.001", "--seeds", 1)
    completed = run_in_process(*arguments, "--out", tmp_path, "--set", *DIVERGING, *TINY)
    assert completed.exit_code == 0, completed.output
    assert "learning_rate 100            diverged in 1 of 1 runs\n" in completed.stdout
    assert "learning_rate 0.001          exact match " in completed.stdout
    assert "These seeds cannot show a difference" in completed.stdout
    assert "These seeds cannot show a difference (smallest possible p = 1)" in completed.stderr


def test_seeds_are_a_number_or_a_list_and_enough_by_default():
    def seeds(*words, values="1,2"):
        return build_spec(None, (f"n_heads={values}",), words, ())["seeds"]

    assert seeds("3") == [0, 1, 2]
    assert seeds("3,4,5") == seeds("3", "4", "5") == seeds("3,4", "5") == [3, 4, 5]
    assert seeds() == [0, 1, 2, 3, 4]
    assert len(seeds(values="1,2,4,8,16")) == 6
    assert len(seeds(values=",".join(map(str, range(1, 13))))) == 5  # 60 runs


def test_a_folder_in_use_is_refused_at_once_and_unchanged(tmp_path, capsys):
    with locked_storage(tmp_path), pytest.raises(SystemExit) as end:
        run(["experiment", "--vary", "norm_placement=pre,post", "--out", str(tmp_path)])
    assert end.value.code == 2
    assert "another server or command uses" in (error := capsys.readouterr().err)
    assert len(error.splitlines()) == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", ".server.lock"]


@pytest.mark.parametrize(
    ("arguments", "expected_message"),
    [
        (
            ("experiment", "--vary", "norm_placement=pre,post", "--set", *HUGE),
            "are free; use a smaller batch_size, d_model, d_ff or max_length",
        ),
        (("experiment", "--set", "steps"), "--set has no effect without a QUESTION or --vary"),
        (
            ("experiment", "--vary", "n_heads"),
            "--vary n_heads has no values; use NAME=VALUE,VALUE, such as n_heads=1,2",
        ),
        (("experiment", "--vary", "--seeds", "1"), "Option '--vary' requires an argument"),
        (("experiment", "--vary", "n_heads=one"), "n_heads is 'one'; it must be a whole number"),
        (
            ("experiment", "--vary", "n_heads=1,2", "n_heads=4"),
            "n_heads occurs twice",
        ),
        (("experiment", "why"), "choose one of positions, heads"),
        (("experiment", "heads", "--figure", "heads.jpg"), "end its name with .png, .svg, .pdf"),
        (("experiment", "heads", "--on", "cloud", "--out", "x"), "choose one of slurm, hf-jobs"),
        (("experiment", "missing.toml"), "cannot be read as an experiment: No such file"),
        (("run-shard", "missing.json", "--shard", "1", "--out", "x"), "use K/N, such as 0/8"),
        *(
            (("experiment", "heads", "--seeds", *wrong), "use 5 for the seeds 0 to 4, or a list")
            for wrong in (["0"], ["10001"], ["3,"], ["x", "4"], ["1.5"], ["9" * 11])
        ),
        (("experiment", "heads", "--seeds", "3,4", "3"), "the same seed twice"),
        (("experiment", "--vary", "eval_every=10,100"), "changes how a run is measured"),
    ],
)
def test_invalid_commands_fail_with_one_line(arguments, expected_message, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        run([*arguments, "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert (end.value.code, printed.out) == (2, "")
    assert expected_message in printed.err
    assert len(printed.err.splitlines()) == 1
