"""An experiment on a real SLURM, whose daemons are processes of the test."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.app_server import ROOT, wait_for
from tests.support.cluster_guide import make_small, read_section
from tests.support.command_runner import COMMAND, start_command
from tests.support.shards import FIVE_STEPS, measurements
from tests.support.slurm_cluster import NODES, SlurmCluster, why_unavailable

pytestmark = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())

SPEC = {
    "name": "heads",
    "base": FIVE_STEPS,
    "grid": {"n_heads": [1, 2], "norm_placement": ["pre", "post"]},
    "seeds": list(range(10)),
}


@pytest.fixture
def cluster(tmp_path):
    folder = tmp_path / "cluster"
    folder.mkdir()
    with SlurmCluster(folder) as cluster:
        yield cluster


@pytest.fixture
def shell(cluster, tmp_path):
    """Run commands in an empty home folder, with this checkout as `playground`."""
    path = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
    environment = cluster.environment | {
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "PATH": path,
    }

    def shell(command):
        words = ["bash", "-c", command]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=170
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return shell


def run(*words, **options):
    words = [*COMMAND, *map(str, words)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=170, **options)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.timeout(600)
def test_shards_survive_lost_jobs_and_equal_the_runs_of_one_machine(cluster, tmp_path):
    spec, out, figure = (tmp_path / name for name in ("spec.json", "shared", "heads.png"))
    spec.write_text(json.dumps(SPEC))
    words = ["experiment", spec, "--out", out, "--on", "slurm", "minutes=5", "--json"]
    words += ["--runs-per-shard", 5, "--csv", tmp_path / "table.csv"]
    with start_command(*words, env=cluster.environment) as process:
        running = wait_for(lambda: cluster.tasks("RUNNING"), 60, "a task that runs")
        cluster.run("scancel", running[0])
        wait_for(lambda: list(out.glob("shards/*/experiments/*.jsonl")), 120, "a result")
        cluster.kill_node(NODES[1])
        cluster.start_node(NODES[1])
        output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    elsewhere = json.loads(output)
    assert [variant["n"] for variant in elsewhere["variants"]] == [10] * 4
    here = json.loads(run("experiment", spec, "--out", tmp_path / "here", "--json").stdout)
    assert measurements(elsewhere) == measurements(here)
    collected = run("collect", out, "--json", "--figure", figure, env=cluster.environment)
    assert json.loads(collected.stdout)["summary"] == elsewhere["summary"]
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "40 of 40 runs have ended; no job waits or runs" in collected.stderr


@pytest.mark.timeout(900)
def test_three_commands_of_the_document_lead_to_a_figure(shell, tmp_path):
    spec = read_section("A specification")[0][0]
    submit, collect, draw = read_section("SLURM")[1][0].splitlines()
    (tmp_path / "heads.toml").write_text(make_small(spec))
    assert "the jobs go on without this command" in shell(submit)
    wait_for(lambda: "no job waits or runs" in shell(collect), 600, "the end of the jobs")
    assert "12 of 12 runs have ended" in shell(draw)
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((tmp_path / "heads.csv").read_text().splitlines()))
    assert [row["n"] for row in rows] == ["2"] * 6
    assert not list((tmp_path / "heads").rglob("*.safetensors"))
