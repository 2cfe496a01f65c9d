"""Experiments in jobs of the stand-in Hub: real HTTP, the real hf_xet, and processes as jobs.

Most jobs only write results, without a process; the first test trains.
"""

import io
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from playground.checkpoints.checkpoint import load_model
from playground.experiments.backends import hf_jobs
from playground.experiments.backends.hf_jobs import build_wheel
from tests.support.app_server import wait_for
from tests.support.cluster_guide import make_small, read_section
from tests.support.command_runner import run_here
from tests.support.shards import FIVE_STEPS, measurements, write_results, write_wheel

SPEC = {"name": "heads", "base": FIVE_STEPS, "grid": {"n_heads": [1, 2]}, "seeds": [0, 1]}
RUNS_PER_SHARD = ("--runs-per-shard", 2)


@pytest.fixture
def paths(hub, tmp_path, monkeypatch):
    """Return the specification and the folder of an experiment."""
    hub.clear()
    monkeypatch.setattr(hf_jobs.HfJobs, "poll_interval_s", 0.05)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SPEC))
    return SimpleNamespace(spec=spec, out=tmp_path / "out")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the package of this checkout, without the network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_BUILD_ISOLATION", "0")
        return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def real_jobs(wheel, monkeypatch):
    monkeypatch.setattr(hf_jobs, "build_wheel", lambda folder: wheel)


@pytest.fixture
def quick(hub, monkeypatch):
    """Run no process in jobs: each writes its results. Return the calls by shard."""
    attempts = {}

    def run_job(hub, job):
        attempts[job.shard] = attempts.get(job.shard, 0) + 1
        return write_results(hub, job)

    monkeypatch.setattr(hf_jobs, "build_wheel", write_wheel)
    hub.run_job = run_job
    return attempts


def command(hub, *words, token=None, **environment):
    """Run a command for Ada; no output has a token."""
    done = run_here(*words, HF_TOKEN=hub.ADA if token is None else token, **environment)
    for output in (done.stdout, done.stderr):
        assert "Traceback" not in output, output
        assert not [held for held in hub.tokens if held in output]
    return done


def train(hub, paths, *words, on=(), **options):
    words = (*RUNS_PER_SHARD, *words, "--on", "hf-jobs", *on)
    return command(hub, "experiment", paths.spec, "--out", paths.out, *words, **options)


def collect(hub, paths, *words):
    done = command(hub, "collect", paths.out, *words)
    assert done.returncode == 0, done.stderr
    return done


def stages(hub):
    return [(job.shard, job.stage) for job in hub.jobs.values()]


def test_jobs_train_the_code_of_the_checkout_as_this_machine_does(hub, paths, real_jobs, tmp_path):
    done = train(hub, paths, "--json")
    assert done.returncode == 0, (done.stderr, [job.log for job in hub.jobs.values()])
    here = command(hub, "experiment", paths.spec, "--out", tmp_path / "here", "--json")
    assert measurements(json.loads(done.stdout)) == measurements(json.loads(here.stdout))
    assert stages(hub) == [("0", "COMPLETED"), ("1", "COMPLETED")]
    (bucket,) = hub.buckets.values()
    assert bucket.private
    files = [path for root in (bucket.folder, paths.out) for path in root.rglob("*.*")]
    assert not [path for path in files if path.suffix == ".safetensors"]
    assert not [path for path in files if path.is_file() and hub.ADA.encode() in path.read_bytes()]
    # the token is in a header, and nowhere else
    assert not [each for each in hub.requests if hub.ADA in replace(each, headers={})]


def test_a_job_trains_one_bigger_model_and_collect_brings_it(
    hub, paths, real_jobs, tmp_path, monkeypatch
):
    (spec,), (guided,) = read_section("One bigger model")
    (tmp_path / "bigger.toml").write_text(make_small(spec))
    _, _, _, *words = guided.split()
    assert words[:2] == ["experiment", "bigger.toml"]
    monkeypatch.setattr("tests.support.command_runner.ROOT", tmp_path)
    assert command(hub, *words).returncode == 0
    assert command(hub, "collect", "bigger").returncode == 0
    (weights,) = (tmp_path / "bigger" / "runs").rglob("0000005/model.safetensors")
    assert load_model(weights.parent)[0].config.model.n_heads == 8
    assert [job.spec["flavor"] for job in hub.jobs.values()] == ["a10g-small"]


def test_a_cancelled_job_saves_its_results_first(hub, paths, real_jobs):
    base = SPEC["base"] | {"max_steps": 100_000}
    paths.spec.write_text(json.dumps(SPEC | {"base": base}))
    assert train(hub, paths, "--detach", "--runs-per-shard", 4).returncode == 0
    wait_for(lambda: list(hub.folder.glob("*/shard/experiments/*.json")), 60, "a run")
    assert "no job waits or runs" in collect(hub, paths, "--cancel").stderr
    (job,) = hub.jobs.values()
    (folder,) = job.mounts(hub).values()
    wait_for(lambda: list(folder.glob("shards/0/experiments/*.json")), 60, "a copy")
    assert stages(hub) == [("0", "CANCELED")]


def test_the_price_comes_before_the_jobs(hub, paths, quick):
    done = train(hub, paths, on=["flavor=cpu-basic"])
    assert done.returncode == 0, done.stderr
    assert "2 jobs on CPU Basic (2 vCPU), each about 3 min" in done.stderr
    assert "the account ada pays" in done.stderr
    assert "jobs on" not in train(hub, paths).stderr  # every run has a result
    assert len(hub.jobs) == 2


@pytest.mark.parametrize(("answer", "n_jobs"), [("n\n", 0), ("y\n", 2)])
def test_a_terminal_confirms_the_price(hub, paths, quick, monkeypatch, answer, n_jobs):
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    done = train(hub, paths)
    assert (done.returncode == 0, len(hub.jobs)) == (bool(n_jobs), n_jobs)


def test_a_job_gets_its_limits_and_no_secret(hub, paths, quick):
    train(hub, paths, on=["minutes=7", "attempts=3", "flavor=cpu-basic"])
    spec = next(iter(hub.jobs.values())).spec
    expected = {"timeoutSeconds": 420, "attempts": 3, "flavor": "cpu-basic"}
    assert {name: spec[name] for name in expected} == expected
    assert spec["environment"] == {"PLAYGROUND_SLOTS": "2"}
    assert "secrets" not in spec


def test_a_shard_that_always_fails_leaves_its_log(hub, paths, quick):
    def run_job(hub, job):
        job.log.append(f"no space on the disk of shard {job.shard}")
        return 1

    hub.run_job = run_job
    done = train(hub, paths)
    assert done.returncode == 2
    assert "shard 0 ended 3 times in a row" in done.stderr
    assert (paths.out / "logs" / "0.log").read_text() == "no space on the disk of shard 0\n"


def test_a_job_after_a_time_out_continues_with_the_results(hub, paths, quick):
    seen = []

    def run_job(hub, job):
        (folder,) = job.mounts(hub).values()
        seen.append(len(list(folder.glob(f"shards/{job.shard}/experiments/*"))))
        if len(seen) == 1:
            write_results(hub, job, n=1)
            job.end("ERROR", "Job timeout")
            return 1
        return write_results(hub, job)

    hub.run_job = run_job
    done = train(hub, paths, "--runs-per-shard", 4)
    assert done.returncode == 0, done.stderr
    assert seen == [0, 2]


def test_a_shard_that_never_starts_shows_the_results_of_others(hub, paths, quick):
    hub.unstarted_shards.add("1")
    assert train(hub, paths, "--detach").returncode == 0
    wait_for(lambda: ("0", "COMPLETED") in stages(hub), 20, "the results of shard 0")
    assert "2 of 4 runs have ended; shard 1 SCHEDULING" in collect(hub, paths).stderr
    assert "no job waits or runs" in collect(hub, paths, "--cancel").stderr
    assert ("1", "CANCELED") in stages(hub)


def test_a_restarted_command_recovers_its_jobs_from_the_hub(hub, paths, quick):
    hub.unstarted_shards |= {"0", "1"}
    train(hub, paths, "--detach")
    jobs = paths.out / "jobs.json"
    jobs.write_text(json.dumps(json.loads(jobs.read_text()) | {"jobs": {}}))
    spec = paths.out / "spec.json"  # as another version of the package writes it
    spec.write_text(json.dumps(json.loads(spec.read_text())))
    assert "shard 0 SCHEDULING, shard 1 SCHEDULING" in collect(hub, paths).stderr
    assert "jobs on" not in train(hub, paths, "--detach").stderr
    assert (len(hub.jobs), len(hub.buckets)) == (2, 1)
    collect(hub, paths, "--cancel")
    assert {stage for _, stage in stages(hub)} == {"CANCELED"}


def test_another_account_neither_finds_nor_pays_for_the_jobs(hub, paths, quick):
    hub.unstarted_shards |= {"0", "1"}
    train(hub, paths, "--detach")
    for done in (
        train(hub, paths, token=hub.BEN),
        command(hub, "collect", paths.out, "--cancel", token=hub.BEN),
    ):
        assert done.returncode == 2
        assert "the jobs belong to the account ada, and this is ben" in done.stderr
    assert {job.owner for job in hub.jobs.values()} == {"ada"}


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("EXPIRED", "the Hub rejected this token, which may have expired"),
        ("ADA_READS", "this token has no permission"),
        ("", "HF Jobs need a token: run `hf auth login`, or set HF_TOKEN"),
    ],
)
def test_a_token_without_access_ends_in_one_sentence(hub, paths, quick, token, message):
    done = train(hub, paths, token=getattr(hub, token, ""))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"playground: {message}")
    assert not hub.jobs


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("flavor=cray", "flavor is cray; choose one of cpu-basic, cpu-upgrade"),
        ("minutes=0", "minutes"),
        ("token=x", "token"),
    ],
)
def test_an_invalid_option_starts_nothing(hub, paths, quick, option, message):
    done = train(hub, paths, on=[option])
    assert done.returncode == 2
    assert message in done.stderr
    assert not hub.jobs
