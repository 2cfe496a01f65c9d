"""`python -m playground compare` as a process, with a fake Hub."""

import json
import os
import signal

import pytest

from playground.__main__ import run
from playground.cli.benchmark import compare
from tests.support.command_runner import run_command, run_in_interpreter, start_command
from tests.support.files import read_files


@pytest.fixture(scope="module")
def environment(hub, tiny_gpt2, tiny_bert, tmp_path_factory):
    """The environment of a machine with a token and a Hub that serves the fixtures."""
    hub.put("gpt2", read_files(tiny_gpt2))
    hub.put("bert-base-uncased", read_files(tiny_bert))
    return os.environ | hub.environment(tmp_path_factory.mktemp("home"), token=hub.OWNER)


def test_documented_command_compares_models_of_the_hub(hub, environment, digits):
    arguments = ("--models", "gpt2", "bert-base-uncased", "--n", 4, "--shots", 1)
    completed = run_in_interpreter("compare", digits, *arguments, "--json", **environment)
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    models = [row["model"] for row in result["rows"]]
    assert models[4:] == ["digits", "gpt2", "bert-base-uncased"]
    assert result["rows"][4]["exact_match"] == 1.0
    assert result["rows"][5]["description"] == "pretrained, never trained on this task"
    assert len(result["examples"]) == 3 * 4
    assert result["request"]["shots"] == 1
    assert "Downloading gpt2" in completed.stderr
    assert hub.requests_with(hub.OWNER) == []


def test_a_model_that_fails_is_one_line_of_the_table(environment, digits):
    arguments = ("compare", digits, "--n", 2, "--shots", 0, "--models", "ben/nothing")
    completed = run_command(*arguments, **environment)
    assert completed.returncode == 1
    lines = completed.stdout.splitlines()
    assert "exact match" in lines[0]
    assert lines[5].startswith("digits")
    assert " 100 % " in lines[5]
    assert lines[6].startswith("ben/nothing")
    assert "no repository ben/nothing" in lines[6]
    assert max(map(len, lines[7:])) <= 100  # notes and caption below the table


def test_interrupted_command_reports_its_finished_rows(environment, digits):
    arguments = ("compare", digits, "--models", "gpt2", "--n", 500, "--shots", 32)
    with start_command(*arguments, env=environment) as process:
        for line in process.stderr:
            if "Evaluating gpt2" in line:
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGINT
    assert "stopped by a signal" in err
    names = [line.split("  ")[0] for line in out.splitlines()[4:6]]
    assert names == ["most frequent target", "digits"]


@pytest.mark.smoke
def test_invalid_arguments_get_a_one_line_error(digits, tmp_path, capsys):
    for arguments, message in (
        ([tmp_path], "config.json"),
        ([digits, "--shots", 33], "33 is not in the range"),
    ):
        with pytest.raises(SystemExit) as end:
            run(["compare", *map(str, arguments)])
        printed = capsys.readouterr()
        assert (end.value.code, printed.out) == (2, "")
        assert message in printed.err


@pytest.mark.parametrize(
    ("arguments", "models"),
    [
        (["checkpoint", "--models", "gpt2", "ben/a", "--n", "3"], ("gpt2", "ben/a")),
        (["checkpoint", "--models", "gpt2", "--models", "ben/a", "--n", "3"], ("gpt2", "ben/a")),
        (["--n", "3", "checkpoint"], ("gpt2", "bert-base-uncased")),
    ],
)
def test_several_models_follow_one_flag(arguments, models):
    with compare.make_context("compare", arguments) as context:
        options = context.params
    actual = options["models"], options["n"], str(options["checkpoint"])
    assert actual == (models, 3, "checkpoint")
