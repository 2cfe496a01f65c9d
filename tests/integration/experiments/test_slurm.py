"""An experiment on a real SLURM, whose daemons are processes of the test."""

import json
import subprocess

import pytest

from tests.support.app_server import ROOT, wait_for
from tests.support.command_runner import COMMAND
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
    with subprocess.Popen(
        [*COMMAND, *map(str, words)],
        cwd=ROOT,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
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
