import asyncio
import io
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from playground.checkpoints.checkpoint import save_checkpoint
from playground.common.storage import directory_size
from playground.datasets.pairs import DatasetError
from playground.datasets.sources import from_text
from playground.datasets.storage import load_metadata, load_pairs, store, to_files
from playground.errors import UserError
from playground.runs.dataset_library import MB, MIN_RETENTION_S, DatasetLibrary
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server.datasets_api import (
    MAX_PENDING_UPLOADS,
    UPLOAD_PATH,
    DatasetHandlers,
)
from playground.training.config import RunConfig
from playground.training.trainer import Trainer
from playground.ui import task_info
from playground.ui.form_values import estimate_and_validate, run_config, validate_form
from playground.ui.train import panel_state
from tests.support.app_server import AppServer
from tests.support.coroutines import run_in_thread
from tests.support.fake_jobs import fake_processes

TEXT = "".join(f"{a} {b} {c}\t{c} {b} {a}\n" for a in "abcdef" for b in "abcdef" for c in "abcdef")
QUOTA_MB = 1


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Start a shared instance with a quota of datasets."""
    server = AppServer(
        tmp_path_factory.mktemp("app"),
        GRADIO_SERVER_NAME="0.0.0.0",
        PLAYGROUND_ADDRESS_MS="0",
        PLAYGROUND_DATASETS_PER_USER_MB=str(QUOTA_MB),
    )
    yield server
    server.stop()


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Store a dataset on this server; return its SHA-256."""
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    return store(from_text(TEXT))


def post(app, path, data, headers):
    request = urllib.request.Request(app.url + path, data, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode()
        return json.loads(text) if text.startswith("{") else {"error": text, "status": error.code}


def upload(app, text, owner, name="", columns=(), words=""):
    data = text if isinstance(text, bytes) else text.encode()
    headers = {
        "x-owner": owner,
        "x-name": quote(name),
        "x-columns": quote("\t".join(columns)),
        "x-words": words,
    }
    return post(app, UPLOAD_PATH, data, headers | {"content-type": "application/octet-stream"})


def request_action(app, action, owner, sha256=""):
    fields = {"action": action, "owner": owner, "sha256": sha256}
    return post(
        app,
        "/playground/api/datasets/action",
        json.dumps(fields).encode(),
        {"content-type": "application/json"},
    )


def find_leftovers(app):
    return [
        path for path in (app.checkpoints / "rows").glob(".*.tmp") if not (path / "rows").is_dir()
    ]


@pytest.mark.smoke
def test_dataset_is_previewed_stored_on_use_and_listed_per_owner(app):
    owner, other = new_owner_key(), new_owner_key()
    response = upload(app, TEXT + "a a a\ta a a\na a a\tb\n", owner)
    assert (
        response["n_pairs"],
        response["vocab_size"],
        response["split_on_spaces"],
        response["source_lengths"],
        response["target_lengths"],
    ) == (
        216,
        6,
        False,
        [3, 3],
        [3, 3],
    )
    assert (response["n_duplicates"], response["n_conflicts"], response["conflict_lines"]) == (
        1,
        1,
        [218],
    )
    assert response["preview"][1] == [["a", "a", "b"], ["b", "a", "a"]]
    assert 0 < response["n_held_out"] < 216
    sha256 = response["sha256"]
    assert not (app.checkpoints / "rows" / sha256).exists()  # only previewed so far
    assert "not on this server" in request_action(app, "show", owner, sha256)["error"]
    answer = request_action(app, "use", other, sha256)  # another user has to upload it
    assert answer["retryable"]
    assert "upload it again" in answer["error"]
    assert request_action(app, "use", owner, sha256) == {}
    assert (app.checkpoints / "rows" / sha256 / "rows.safetensors").is_file()
    assert [row["sha256"] for row in request_action(app, "list", owner)["datasets"]] == [sha256]
    assert request_action(app, "list", other)["datasets"] == []
    assert {
        **response,
        "n_duplicates": 0,
        "n_conflicts": 0,
        "conflict_lines": [],
    } == request_action(app, "show", other, sha256)
    assert "not yours, or was removed" in request_action(app, "remove", other, sha256)["error"]
    assert request_action(app, "use", other, sha256) == {}  # created by the link
    assert request_action(app, "remove", owner, sha256) == {}
    assert (app.checkpoints / "rows" / sha256).is_dir()
    assert request_action(app, "remove", other, sha256) == {}
    assert not (app.checkpoints / "rows" / sha256).exists()


def test_invalid_lines_are_reported_by_number_and_valid_ones_previewed(app):
    response = upload(app, TEXT + "no tab\n" * 6 + "\tx\n", new_owner_key())
    assert response["n_rejected"] == 7
    assert response["lines"] == [
        f"line {n} has no tab, arrow, comma or two spaces between source and target"
        for n in range(217, 222)
    ]
    assert "sha256" not in response
    assert response["n_pairs"] == 216
    assert response["preview"][0] == [["a", "a", "a"], ["a", "a", "a"]]


def test_columns_of_a_table_are_selected_by_name(app):
    owner = new_owner_key()
    table = "id,from,to\n" + "".join(
        f"{n},{line.replace(chr(9), ',')}\n" for n, line in enumerate(TEXT.splitlines())
    )
    response = upload(app, table, owner, "rows.csv")
    assert response["columns"] == ["id", "from", "to"]
    assert "name the two with sources and targets" in response["error"]
    assert (
        upload(app, table, owner, "rows.csv", ("from", "to"))["sha256"]
        == upload(app, TEXT, owner)["sha256"]
    )
    assert (
        "name two of id, from, to" in upload(app, table, owner, "rows.csv", ("from", "x"))["error"]
    )
    assert upload(app, TEXT.replace(" ", ""), owner, words="characters")["vocab_size"] == 6
    assert upload(app, TEXT.replace(" ", ""), owner, words="words")["vocab_size"] == 216


def test_uploaded_code_is_not_executed(app, tmp_path):
    script = tmp_path / "task.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(s): return s\n")
    for name in (f"{script}:f", "task.py", "hub:../../etc/passwd", f"hub:{script}:f"):
        assert "error" in upload(app, script.read_bytes(), new_owner_key(), name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("data", "expected_message"),
    [
        (b"", "the dataset is empty"),
        (b"a\t" + b"b" * 1_000_000, "of 1,000,000 characters, above 10,000"),
        (b"EOS x\ty\n", "is the name of a special token"),
    ],
)
def test_a_hostile_dataset_gets_an_error_and_leaves_no_file(app, data, expected_message):
    assert expected_message in upload(app, data, new_owner_key())["error"]
    assert find_leftovers(app) == []


@pytest.mark.parametrize("owner", ["", "../" * 12])
def test_a_request_without_an_owner_stores_nothing(app, owner):
    assert "reload the page" in upload(app, TEXT, owner)["error"]
    assert "reload the page" in request_action(app, "list", owner)["error"]


@pytest.mark.parametrize("sha256", ["../runs", 5, "Z" * 64])
def test_an_invalid_sha256_is_rejected(app, sha256):
    for action in ("use", "show", "remove"):
        response = request_action(app, action, new_owner_key(), sha256)
        assert response["error"] == "the request names no dataset; upload one first"


def endless_request(owner, ended, address="10.0.0.1"):
    """Create a request with an endless body."""

    async def stream():
        try:
            while True:
                yield b"a"
                await asyncio.sleep(0.01)
        finally:
            ended.append(owner)

    return SimpleNamespace(
        headers={"x-owner": owner}, stream=stream, client=SimpleNamespace(host=address)
    )


def test_slow_upload_times_out_and_each_user_holds_one_slot(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr("playground.server.datasets_api.UPLOAD_TIMEOUT_S", 2)
    handlers, owners, ended = (
        DatasetHandlers(SimpleNamespace(single_owner="")),
        [new_owner_key() for _ in range(MAX_PENDING_UPLOADS)],
        [],
    )

    async def upload_concurrently():
        first = [
            asyncio.create_task(handlers.upload(endless_request(owner, ended, f"10.0.0.{n % 2}")))
            for n, owner in enumerate(owners)
        ]
        await asyncio.sleep(0.1)
        rejected = await handlers.upload(endless_request(new_owner_key(), ended))
        second_upload = asyncio.create_task(
            handlers.upload(endless_request(owners[0], ended, "10.0.0.0"))
        )
        replaced = await asyncio.wait_for(first[0], 1.5)
        timed_out = await asyncio.wait_for(asyncio.gather(*first[1:], second_upload), 20)
        return rejected, replaced, timed_out, len(handlers._slots._transfers)

    with ThreadPoolExecutor(1) as thread:
        rejected, replaced, timed_out, n_transfers = thread.submit(
            asyncio.run, upload_concurrently()
        ).result(30)
    assert rejected.status_code == 503
    assert json.loads(replaced.body) == {"error": "a newer upload replaced this one"}
    assert {json.loads(response.body)["error"] for response in timed_out} == {
        "the upload took longer than 2 s; upload fewer pairs"
    }
    assert (n_transfers, sorted(ended), list((tmp_path / "rows").iterdir())) == (
        0,
        sorted([*owners, owners[0]]),
        [],
    )


def test_a_preview_does_not_cancel_an_upload_of_the_same_user(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    handlers, owner = DatasetHandlers(SimpleNamespace(single_owner="")), new_owner_key()
    started = fake_processes(monkeypatch)

    async def send_requests():
        requests = [{"file": "a"}, {"dataset": "0" * 64}, {"dataset": "1" * 64}]
        tasks = [asyncio.create_task(handlers.read_dataset(owner, request)) for request in requests]
        await run_pending_tasks()
        for process in started:
            process.finish(rows=1)
        await run_pending_tasks()
        for process in started[1:]:
            process.finish(rows=2)
        return await asyncio.gather(*tasks)

    upload, replaced, preview = run_in_thread(send_requests())
    assert upload == {"rows": 1}
    assert "a newer preview replaced this one" in replaced["error"]
    assert preview["rows"] in (1, 2)


def test_leftovers_of_killed_server_use_no_quota_and_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    leftovers = [tmp_path / "rows" / ".0123.tmp", tmp_path / "compared" / ".gpt2.0123.tmp"]
    for folder in leftovers:
        folder.mkdir(parents=True)
        (folder / "upload").write_bytes(bytes(2_000_000))
        os.utime(folder, (0, 0))
    monkeypatch.setenv("PLAYGROUND_DATASETS_TOTAL_MB", "1")
    DatasetLibrary(SimpleNamespace(single_owner=""))._ensure_quota(new_owner_key(), 1000, 1000)
    registry = Registry(tmp_path)
    try:
        assert not any(folder.exists() for folder in leftovers)
    finally:
        registry.shutdown()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to its memory")
def test_reader_process_has_a_memory_limit():
    """Reserve memory without using it, so that a missing limit does not affect the machine."""
    script = """
from playground.server import dataset_reader
dataset_reader._load_dataset = lambda request: bytearray(8 * dataset_reader.MAX_MEMORY_BYTES)
print(dataset_reader.read_dataset({}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200
    )
    assert "these pairs need more memory than is free" in done.stdout, done.stderr


def test_upload_of_more_than_50_mb_is_rejected_before_its_body(app):
    request = urllib.request.Request(
        app.url + UPLOAD_PATH,
        io.BytesIO(b""),
        {"x-owner": new_owner_key(), "content-length": "50000001"},
        method="POST",
    )
    with pytest.raises(urllib.error.HTTPError) as error_info:
        urllib.request.urlopen(request, timeout=20)
    with error_info.value as error:
        assert error.code == 413


def test_an_owner_has_a_quota_of_datasets_and_frees_it_by_removal(app):
    owner, first = new_owner_key(), None
    for at in range(9):
        # about 0.5 MB when stored
        text = "".join(f"{n:05d}{at}{'0' * 50}\t{'1' * 100}\n" for n in range(1500))
        sha256 = upload(app, text, owner)["sha256"]
        first = first or sha256
        if answer := request_action(app, "use", owner, sha256):
            break
    assert answer["error"].endswith(
        f"{QUOTA_MB} MB are possible, so remove some or upload fewer pairs"
    )
    assert not (app.checkpoints / "rows" / sha256).exists()
    assert (
        request_action(app, "use", new_owner_key(), first) == {}
    )  # others have a quota of their own
    assert request_action(app, "remove", owner, first) == {}
    assert (
        request_action(app, "use", owner, sha256) == {}
    )  # the upload that was read for the preview is stored


class DatasetStore:
    """Store datasets of several users of a shared instance."""

    def __init__(self, root):
        self.root, self.registry = root, Registry(root)
        self.library = DatasetLibrary(self.registry)

    def upload(self, symbol, owner, times=1):
        """Upload a dataset with a token of its own; return its SHA-256."""
        lines = (f"{n:04d}{symbol}\t{symbol}{n:04d}\n" for n in range(300 * times))
        dataset = from_text("".join(lines))
        folder = self.root / "rows" / f".{symbol}.tmp"
        (folder / "rows").mkdir(parents=True)
        for name, data in to_files(dataset).items():
            (folder / "rows" / name).write_bytes(data)
        self.library.set_pending(owner, dataset.sha256, folder)
        return dataset.sha256

    def use(self, symbol, owner, since=0.0):
        """Store a dataset as if its last use was `since` seconds ago."""
        sha256 = self.upload(symbol, owner)
        self.library.store(owner, sha256)
        self.set_last_use(sha256, since)
        return sha256

    def set_last_use(self, sha256, since):
        for path in [self.root / "rows" / sha256, *self.root.glob(f"rows/.owners/*/{sha256}")]:
            os.utime(path, (time.time() - since,) * 2)

    def start_run(self, sha256, owner):
        """Start a run on a dataset."""
        settings = {
            "d_model": 16,
            "n_heads": 2,
            "n_layers": 1,
            "d_ff": 16,
            "batch_size": 8,
            "eval_size": 32,
            "max_steps": 6,
        }
        folder = self.root / ".made"
        save_checkpoint(
            folder, Trainer(RunConfig.from_flat(settings | load_pairs(sha256).task_settings())), []
        )
        return self.registry.import_checkpoint(folder, owner, "my run")

    def set_free_space(self, n_datasets):
        """Set the quota so that this many more datasets fit, possibly a fraction."""
        sizes = [directory_size(self.root / "rows" / sha256) for sha256 in self.stored_datasets()]
        self.library.all_mb = (sum(sizes) + n_datasets * max(sizes)) / MB

    def stored_datasets(self):
        return {path.name for path in (self.root / "rows").glob("[!.]*")}

    def listed(self, owner):
        return [row["sha256"] for row in self.library.list_datasets(owner)]


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    datasets = DatasetStore(tmp_path)
    yield datasets
    datasets.registry.shutdown()


def test_unused_datasets_are_evicted_oldest_first(datasets):
    ada, bob = new_owner_key(), new_owner_key()
    trained = datasets.use("a", ada, since=9 * MIN_RETENTION_S)
    datasets.start_run(trained, ada)
    oldest, older = (
        datasets.use("b", ada, since=3 * MIN_RETENTION_S),
        datasets.use("c", ada, since=2 * MIN_RETENTION_S),
    )
    shared = datasets.use("d", ada, since=8 * MIN_RETENTION_S)
    datasets.library.store(bob, shared)
    recent = datasets.use("e", ada, since=MIN_RETENTION_S / 2)
    datasets.set_free_space(0.5)
    new = datasets.use("f", bob)
    assert datasets.stored_datasets() == {trained, older, shared, recent, new}
    assert oldest not in datasets.listed(ada)
    newer = datasets.use("g", bob)
    assert datasets.stored_datasets() == {trained, shared, recent, new, newer}
    with pytest.raises(UserError, match="has no space for more datasets"):
        datasets.use("h", bob)
    assert datasets.stored_datasets() == {trained, shared, recent, new, newer}


def test_owners_behind_one_address_keep_at_most_half_of_all_datasets(datasets, client_address):
    client_address.set("192.0.2.1")
    ada = new_owner_key()
    other = datasets.use("a", ada, since=3 * MIN_RETENTION_S)
    client_address.set("192.0.2.9")
    owners = [new_owner_key() for _ in range(4)]
    old, recent = (
        datasets.use("b", owners[0], since=2 * MIN_RETENTION_S),
        datasets.use("c", owners[1]),
    )
    datasets.library.all_mb = (
        2
        * 2.5
        * max(
            directory_size(datasets.root / "rows" / sha256) for sha256 in datasets.stored_datasets()
        )
        / MB
    )
    # the oldest unused datasets of the address are removed first
    newer = datasets.use("d", owners[2])
    assert datasets.stored_datasets() == {other, recent, newer}
    assert datasets.listed(owners[0]) == []
    sha256 = datasets.upload("e", owners[3])
    with pytest.raises(
        UserError,
        match=r"datasets from your address take all of the .* MB that one address may store here; "
        r"remove some",
    ):
        datasets.library.store(owners[3], sha256)
    client_address.set("192.0.2.1")
    assert datasets.use("f", ada) in datasets.stored_datasets()
    client_address.set("192.0.2.9")
    datasets.library.remove(owners[1], recent)
    datasets.library.store(owners[3], sha256)
    assert other in datasets.stored_datasets()
    assert old not in datasets.stored_datasets()


def test_a_dataset_above_the_evictable_space_is_rejected(datasets):
    ada, bob = new_owner_key(), new_owner_key()
    old, recent = datasets.use("a", ada, since=2 * MIN_RETENTION_S), datasets.use("b", ada)
    datasets.set_free_space(0.5)
    sha256 = datasets.upload("c", bob, times=2)
    with pytest.raises(UserError, match="has no space for more datasets; try again later"):
        datasets.library.store(bob, sha256)
    assert datasets.stored_datasets() == set(datasets.listed(ada)) == {old, recent}
    assert datasets.listed(bob) == []


def test_the_form_trains_on_a_stored_dataset(stored):
    values = RunConfig().to_flat() | {
        "preset": "fast",
        "task": "dataset",
        "dataset_sha256": stored,
        "min_length": 3,
        "max_length": 3,
    }
    values = {
        name: value
        for name, value in values.items()
        if name not in ("source_vocab_size", "target_vocab_size", "max_positions")
    }
    config = run_config(values)
    assert config.task.dataset_symbols == "a b c d e f"
    assert (config.task.max_target_length, config.model.source_vocab_size) == (3, 9)
    assert run_config(values | {"task": "copy", "max_length": 5}).task.dataset_sha256 == ""
    assert validate_form(list(values), list(values.values())) == {}
    assert "Next run" in estimate_and_validate(values)[0]
    wrong = values | {"min_length": 4, "max_length": 9}
    assert (
        "longest source of this dataset has 3"
        in validate_form(list(wrong), list(wrong.values()))["min_length"]
    )


@pytest.mark.parametrize(
    ("sha256", "expected_message"),
    [
        ("", "no dataset is selected"),
        ("0" * 64, "is not on this server; upload it below"),
    ],
)
def test_a_missing_dataset_is_explained(stored, sha256, expected_message):
    values = RunConfig().to_flat() | {"task": "dataset", "dataset_sha256": sha256}
    wrong = validate_form(list(values), list(values.values()))
    assert list(wrong) == ["dataset_sha256"]
    assert expected_message in wrong["dataset_sha256"]
    assert json.loads(panel_state("o", sha256)) == {
        "owner": "o",
        "sha256": sha256 if sha256 == "0" * 64 else "",
    }


def test_stored_datasets_are_loaded_and_invalid_ones_rejected(stored, tmp_path):
    dataset = load_pairs(stored)
    assert (dataset.sha256, len(dataset), dataset.preview(1)) == (
        stored,
        216,
        [(["a", "a", "a"], ["a", "a", "a"])],
    )
    folder = tmp_path / "rows" / stored
    tensors = (folder / "rows.safetensors").read_bytes()
    for broken in (tensors[:-3], tensors[:-1] + b"\xff", b"", b"\xff" * 40, tensors[:8]):
        (folder / "rows.safetensors").write_bytes(broken)
        with pytest.raises(DatasetError, match="is damaged"):
            load_pairs(stored)
    for broken in (
        b"",
        b"[]",
        b'{"vocabulary": ["a", "a"]}',
        b'{"vocabulary": ["a"], "rows": -1}',
        b"[" * 100_000,
    ):
        (folder / "rows.json").write_bytes(broken)
        with pytest.raises(DatasetError, match="is damaged"):
            load_metadata(stored)


def test_difficulty_of_a_task_is_formatted_from_measurements():
    row = {
        "task": "x",
        "seeds": 3,
        "budget": 600,
        "steps": [40, 60, 50],
        "scores": [0.991, 0.999, 0.995],
    }
    assert task_info.format_difficulty(row) == (
        "Solved in about 50 steps with Fast.",
        "Measured by python -m benchmarks tasks: 99 % exact match, fast preset, 600 steps, "
        "lengths 1 to 10, 3 seeds",
    )
    for changes, sentence in (
        ({"steps": [40, 60], "scores": [0.991, 0.999, 0.5]}, "Solved with Fast in 2 of 3 runs;"),
        ({"steps": [40], "scores": [0.991, 0.7, 0.5]}, "the worst reaches 50 % exact match."),
        ({"seeds": 1, "steps": [], "scores": [0.0049]}, "Not solved with Fast: 0.4 %"),
    ):
        assert sentence in task_info.format_difficulty(row | changes)[0]
    assert (
        task_info.task_description_html("dataset") == task_info.task_description_html(["x"]) == ""
    )


async def run_pending_tasks():
    for _ in range(50):
        await asyncio.sleep(0)


def test_one_address_uses_one_of_the_dataset_readers(tmp_path, monkeypatch, client_address):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    uploads = DatasetHandlers(SimpleNamespace(single_owner=""))
    started, finished = fake_processes(monkeypatch), []

    def read(name, address):
        client_address.set(address)
        return asyncio.create_task(uploads.read_dataset(new_owner_key(), {"name": name}))

    def running():
        names = [process.arguments[1][0]["name"] for process in started]
        return [name for name in names if name not in finished]

    def finish(name):
        names = [process.arguments[1][0]["name"] for process in started]
        finished.append(name)
        started[names.index(name)].finish(rows=1)

    async def read_concurrently():
        tasks = [read(f"bulk {n}", "192.0.2.1") for n in range(4)]
        await run_pending_tasks()
        running_first = running()
        tasks.append(read("ada", "192.0.2.2"))
        await run_pending_tasks()
        running_with_ada, running_after_each = running(), []
        for _ in range(4):
            finish(next(name for name in running() if name != "ada"))
            await run_pending_tasks()
            running_after_each.append(running())
        finish("ada")
        return running_first, running_with_ada, running_after_each, await asyncio.gather(*tasks)

    running_first, running_with_ada, running_after_each, responses = run_in_thread(
        read_concurrently()
    )
    assert running_first == ["bulk 0"]
    assert running_with_ada == ["bulk 0", "ada"]
    assert running_after_each == [["ada", "bulk 1"], ["ada", "bulk 2"], ["ada", "bulk 3"], ["ada"]]
    assert responses == [{"rows": 1}] * 5


def test_pending_requests_for_stored_datasets_are_limited(tmp_path, monkeypatch, client_address):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setattr("playground.server.datasets_api.load_metadata", lambda sha256: {})
    handlers, waiting = DatasetHandlers(SimpleNamespace(single_owner="")), []

    async def send_many():
        release = asyncio.Event()

        async def read(owner, order):
            waiting.append(owner)
            await release.wait()
            return {"rows": 1}

        monkeypatch.setattr(handlers, "read_dataset", read)
        tasks = []
        for number in range(40):
            client_address.set(f"192.0.2.{number % 3}" if number >= 20 else "192.0.2.9")
            request = {"action": "show", "owner": new_owner_key(), "sha256": "0" * 64}
            tasks.append(asyncio.create_task(handlers.act_on_dataset(request)))
        await asyncio.wait(tasks, timeout=2)
        n_waiting = len(waiting)
        release.set()
        responses = await asyncio.gather(*tasks)
        later_response = await handlers.act_on_dataset(
            {"action": "show", "owner": new_owner_key(), "sha256": "0" * 64}
        )
        return n_waiting, responses, later_response

    n_waiting, responses, later_response = run_in_thread(send_many())
    rejected = [response for response in responses if response != {"rows": 1}]
    assert n_waiting <= 8
    assert [response for response in responses[:20] if response == {"rows": 1}] == [
        {"rows": 1}
    ] * 4  # one address has half of the slots
    assert len(rejected) == 40 - n_waiting
    assert all(
        response["retryable"] and "try again in a moment" in response["error"]
        for response in rejected
    )
    assert later_response == {"rows": 1}
