"""The real app is ended at random moments, by SIGTERM or kill -9, while everything is in use.

Whatever it has acknowledged exists after the next start, and the storage is clean.
"""

import http.client
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
from contextlib import suppress

from playground.checkpoints.checkpoint import resume_trainer
from playground.runs.state import Run
from tests.support.app_server import ROOT, AppServer, wait_for
from tests.support.page_client import PageClient, run_folders, zipped_small_checkpoint
from tests.support.small_runs import repeat_counts

RANDOM = random.Random(0)
MAX_ACKNOWLEDGED = 9  # answers before the signal, at most


class Ledger:
    """What the server has acknowledged, and what it may have done without an answer.

    `runs` has the possible values of the name and the deletion of each run.
    """

    def __init__(self):
        self.runs, self.checkpoints, self.datasets, self.experiments = {}, {}, set(), {}
        self.answers = threading.Semaphore(0)
        self.n_answers = 0

    def acknowledge(self):
        self.n_answers += 1
        self.answers.release()


class Clients:
    """Threads that use the server until it ends."""

    def __init__(self, app, ledger, archive_bytes):
        self.app, self.ledger, self.archive_bytes = app, ledger, archive_bytes
        self.owner = (app.checkpoints / "runs" / ".owner").read_text()
        self.errors = []
        works = (self.edit, self.train, self.store_datasets, self.submit_experiments)
        self.threads = [threading.Thread(target=self.run, args=(work,)) for work in works]
        for thread in self.threads:
            thread.start()

    def run(self, work):
        try:
            with suppress(OSError, http.client.HTTPException):  # the server has ended
                while self.app.process.poll() is None:
                    work(PageClient(self.app, self.owner))
        except RuntimeError as error:
            if "stopping" not in str(error):  # it answers so while it ends
                self.errors.append(error)
        except Exception as error:
            self.errors.append(error)

    def change(self, page, subject, field, value, action, **fields):
        """Send a change of a run; until it is answered, the old value is possible, too."""
        self.ledger.runs[subject][field].append(value)
        page.run_action(subject, action, **fields)
        self.ledger.runs[subject][field] = [value]
        self.ledger.acknowledge()

    def edit(self, page):
        """Upload a model, name it, and delete an older one."""
        subject = page.upload(self.archive_bytes)
        self.ledger.runs[subject] = {"name": [None], "deleted": [False]}
        self.ledger.acknowledge()
        name = f"named {secrets.token_hex(4)}"
        self.change(page, subject, "name", name, "rename", name=name)
        current = [
            each for each, fields in list(self.ledger.runs.items()) if fields["deleted"] == [False]
        ]
        if len(current) > 3 and current[1] not in self.ledger.checkpoints:
            self.change(page, current[1], "deleted", True, "delete")

    def train(self, page):
        """Train a model, and save checkpoints."""
        subject = next(iter(list(self.ledger.runs)), None)
        if subject is None:
            return
        page.run_action(subject, "resume")
        known = set(self.ledger.checkpoints.setdefault(subject, []))
        step = page.poll(subject)["step"]
        wait_for(lambda: page.poll(subject)["step"] > step, 60)
        page.run_action(subject, "save")

        def new_checkpoints():
            listed = page.call("runs/details", subject=subject)["checkpoints"]
            return [
                each["name"] for each in listed if each["is_pinned"] and each["name"] not in known
            ]

        self.ledger.checkpoints[subject] += wait_for(new_checkpoints, 60)
        self.ledger.acknowledge()

    def store_datasets(self, page):
        number = len(self.ledger.datasets)
        rows = "".join(f"{number:04d}{n:03d}\t{n:03d}{number:04d}\n" for n in range(50))
        headers = {"X-Owner": self.owner, "X-Name": "pairs.tsv"}
        report = page.post("/playground/datasets", rows.encode(), headers)
        if (
            "sha256" in report
            and page.call("datasets/action", action="use", sha256=report["sha256"]) == {}
        ):
            self.ledger.datasets.add(report["sha256"])
            self.ledger.acknowledge()

    def submit_experiments(self, page):
        """Submit an experiment of two short runs, and delete an older one."""
        subject = next(iter(list(self.ledger.runs)), None)
        if subject is None:
            return
        grid = [["norm_placement", "pre, post"], ["max_steps", "20"]]
        form = {"name": "", "base": subject, "grid": grid, "seeds": "0", "kind": "grid"}
        submitted = page.call("experiments/submit", form=form)
        assert "experiment" in submitted, submitted
        self.ledger.experiments[submitted["experiment"]] = [True]
        self.ledger.acknowledge()
        while len(self.ledger.experiments) > 3:
            oldest = next(iter(self.ledger.experiments))
            self.ledger.experiments[oldest].append(False)
            page.call("experiments/action", experiment=oldest, action="delete")
            del self.ledger.experiments[oldest]


def check_acknowledged(app, ledger):
    """Check what the page lists after a start."""
    page = PageClient(app, (app.checkpoints / "runs" / ".owner").read_text())
    listed = {row["subject"]: row for row in page.call("runs/list")["runs"]}
    for subject, fields in list(ledger.runs.items()):
        if subject not in listed and fields["deleted"] == [True]:
            del ledger.runs[subject]  # the time to restore it is over
            continue
        row = listed[subject]
        for field, values in fields.items():
            assert row[field] in values or values[0] is None, (subject, field, row[field], values)
            fields[field] = [row[field]]
    for subject, names in ledger.checkpoints.items():
        details = page.call("runs/details", subject=subject)
        assert {*names} <= {each["name"] for each in details["checkpoints"]}
    datasets = page.call("datasets/action", action="list")["datasets"]
    assert ledger.datasets <= {each["sha256"] for each in datasets}
    experiments = {each["id"] for each in page.call("experiments/poll")["experiments"]}
    for experiment, possible in list(ledger.experiments.items()):
        assert experiment in experiments or False in possible
        if experiment not in experiments:
            del ledger.experiments[experiment]
    for experiment in experiments:  # also one whose answer got lost, to be deleted in its turn
        ledger.experiments.setdefault(experiment, [True])
    return page


def check_storage_is_clean(app):
    """Check that there are no unfinished writes, once workers have ended, and no orphans."""

    def unfinished():
        paths = app.checkpoints.rglob(".*")
        return [path for path in paths if path.name.endswith((".tmp", ".previous"))]

    wait_for(lambda: not unfinished(), 30, f"an end of {unfinished()}")
    folders = {path.parent for path in (app.checkpoints / "runs").glob("*/run.json")}
    scratch = app.checkpoints / "runs" / ".scratch"
    assert list(scratch.iterdir()) == []
    assert {path for path in scratch.parent.iterdir() if path.is_dir()} == {*folders, scratch}


def start_command(app):
    """Start a command that trains and saves a model in the storage of the server."""
    arguments = ["train", "--max-steps", "3", "--out", str(app.checkpoints / "of-command")]
    return subprocess.Popen(
        [sys.executable, "-m", "playground", *arguments, "--overwrite"],
        cwd=ROOT,
        env=os.environ | app.environment | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def end_while_used(app, ledger, clients, number):
    """End the server by a signal at a random moment, and a command with it."""
    processes = [app.process, start_command(app)] if RANDOM.random() < 0.2 else [app.process]
    ledger.answers = threading.Semaphore(0)
    for _ in range(RANDOM.randint(1, MAX_ACKNOWLEDGED)):
        assert ledger.answers.acquire(timeout=120), clients.errors
    for process in processes:
        process.send_signal(number)
    codes = [process.wait(60) for process in processes]
    assert codes[0] == (0 if number == signal.SIGTERM else -number)
    for thread in clients.threads:
        thread.join(120)
    assert clients.errors == []


@repeat_counts(3, 100)
def test_nothing_acknowledged_is_lost_when_the_server_is_ended(tmp_path, count):
    ledger, archive_bytes = Ledger(), zipped_small_checkpoint(tmp_path)
    app = AppServer(tmp_path, PLAYGROUND_SLOTS="2")
    try:
        for index in range(count):
            number = signal.SIGTERM if index % 2 else signal.SIGKILL
            end_while_used(app, ledger, Clients(app, ledger, archive_bytes), number)
            app.start()
            check_acknowledged(app, ledger)
            check_storage_is_clean(app)
            assert "Traceback" not in app.log.read_text()
            print(f"{index + 1} ends of the server, {ledger.n_answers} acknowledged", flush=True)
        folders = {f"run:{Run.read(folder).id}": folder for folder in run_folders(app)}
        for subject, names in ledger.checkpoints.items():
            for path in (folders[subject] / "checkpoints" / name for name in names):
                assert resume_trainer(path)[0].step_count == int(path.name[:7])
    finally:
        app.process.kill()
        app.process.wait(60)
