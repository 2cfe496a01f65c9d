"""The routes of the dataset panel; readers run in this process."""

import asyncio
import json
import subprocess
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.common.platform import IS_WINDOWS
from playground.datasets.sources import ReadOptions
from playground.jobs.admission import LIMITS
from playground.jobs.entry import last_message
from playground.jobs.executors import ProcessPerJob
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.runs.storage_folder import StorageFolder
from playground.server import dataset_reader
from playground.server.dataset_reader import read_dataset
from playground.server.datasets_api import UPLOAD_PATH, DatasetHandlers
from playground.server.routes import ROUTE_PREFIX, build_routes
from tests.support.coroutines import run_in_thread, until

TEXT = "".join(f"{a} {b} {c}\t{c} {b} {a}\n" for a in "abcdef" for b in "abcdef" for c in "abcdef")


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))


@pytest.fixture
def handlers(tmp_path):
    """Handlers without a registry of runs."""
    storage, quota = StorageFolder(tmp_path), SimpleNamespace()
    return DatasetHandlers(
        SimpleNamespace(single_owner="", damaged={}, storage=storage, storage_quota=quota)
    )


@pytest.fixture
def client(tmp_path, monkeypatch):
    """A client of a shared instance with a quota of 1 MB of datasets."""

    def read_in_this_process(executor, job):
        message = last_message(lambda: read_dataset(*job.arguments))
        threading.Thread(target=executor.on_end, args=(job, message, None)).start()
        return True

    monkeypatch.setenv("PLAYGROUND_DATASETS_PER_USER_MB", "1")
    monkeypatch.setattr(ProcessPerJob, "start", read_in_this_process)
    monkeypatch.setattr(dataset_reader, "limit_memory_growth", lambda n: None)
    registry = Registry(tmp_path)
    handlers = DatasetHandlers(registry)
    routes = [*build_routes(handlers.handlers()), *handlers.routes()]
    with TestClient(Starlette(routes=routes)) as client:
        yield client
    registry.shutdown()


def upload(client, text, owner, name="", columns=(), **headers):
    headers = {f"x-{key.replace('_', '-')}": value for key, value in headers.items()}
    headers |= {"x-owner": owner, "x-name": quote(name), "x-columns": quote("\t".join(columns))}
    return client.post(UPLOAD_PATH, content=text, headers=headers).json()


def request_action(client, action, owner, sha256=""):
    fields = {"action": action, "owner": owner, "sha256": sha256}
    return client.post(f"{ROUTE_PREFIX}datasets/action", json=fields).json()


def stored_files(tmp_path):
    return [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]


def test_dataset_is_previewed_stored_on_use_and_listed_per_owner(client, tmp_path):
    owner, other = new_owner_key(), new_owner_key()
    response = upload(client, TEXT + "a a a\ta a a\na a a\tb\n", owner)
    assert (
        response["n_pairs"],
        response["vocab_size"],
        response["split_on_spaces"],
        response["source_lengths"],
        response["target_lengths"],
    ) == (216, 6, False, [3, 3], [3, 3])
    assert (response["n_duplicates"], response["n_conflicts"], response["conflict_lines"]) == (
        1,
        1,
        [218],
    )
    assert response["preview"][1] == [["a", "a", "b"], ["b", "a", "a"]]
    assert 0 < response["n_held_out"] < 216
    sha256 = response["sha256"]
    assert not (tmp_path / "rows" / sha256).exists()  # only previewed so far
    assert "not on this server" in request_action(client, "show", owner, sha256)["error"]
    answer = request_action(client, "use", other, sha256)  # another user has to upload it
    assert answer["retryable"]
    assert "upload it again" in answer["error"]
    assert request_action(client, "use", owner, sha256) == {}
    assert (tmp_path / "rows" / sha256 / "rows.safetensors").is_file()
    [stored] = request_action(client, "list", owner)["datasets"]
    assert (stored["sha256"], stored["name"]) == (sha256, "pasted examples")
    assert request_action(client, "list", other)["datasets"] == []
    of_rows = ("recognized", "has_names", "columns", "selected", "n_rows", "n_duplicates")
    of_rows += ("n_conflicts", "conflict_lines")  # what only the text has
    preview = request_action(client, "show", owner, sha256)
    assert [preview[name] for name in of_rows] == ["", None, [], [], 216, 0, 0, []]
    assert preview == {**response, **{name: preview[name] for name in of_rows}}
    # its hash opens nothing: others get the answers for a missing dataset
    unknown = "0" * 64
    for action in ("show", "use", "remove"):
        answers = [request_action(client, action, other, each) for each in (sha256, unknown)]
        assert "error" in answers[0]
        assert str(answers[0]).replace(sha256[:12], "") == str(answers[1]).replace("0" * 12, "")
    assert upload(client, TEXT, other)["sha256"] == sha256
    assert request_action(client, "use", other, sha256) == {}  # the same pairs are stored once
    assert request_action(client, "remove", owner, sha256) == {}
    assert (tmp_path / "rows" / sha256).is_dir()
    assert request_action(client, "remove", other, sha256) == {}
    assert not (tmp_path / "rows" / sha256).exists()


def test_unusable_rows_are_listed_and_usable_ones_previewed(client, tmp_path):
    response = upload(client, TEXT + "no tab\n" * 6 + "\tx\n", new_owner_key())
    assert (response["n_skipped"], len(response["skipped"]), response["n_pairs"]) == (7, 5, 216)
    assert response["n_rows"] == 223
    response = upload(client, TEXT + "no tab\n" * 217, new_owner_key())  # more than half
    assert (response["n_rejected"], len(response["lines"]), response["n_pairs"]) == (217, 5, 216)
    assert response["preview"][0] == [["a", "a", "a"], ["a", "a", "a"]]
    assert "sha256" not in response


def test_the_user_chooses_whether_the_first_line_has_names(client):
    owner, table = new_owner_key(), "Wort;Ziel\r\n" + TEXT.replace("\t", ";")
    named = upload(client, table, owner, "words.csv")
    assert (named["has_names"], named["selected"], named["n_pairs"]) == (
        True,
        ["Wort", "Ziel"],
        216,
    )
    example = upload(client, table, owner, "words.csv", first_line="example")
    assert (example["has_names"], example["n_pairs"]) == (False, 217)
    forced = upload(client, TEXT, owner, first_line="names")
    assert (forced["has_names"], forced["columns"], forced["n_pairs"]) == (
        True,
        ["a a a", "column 2"],
        215,
    )


def test_each_owner_of_the_same_pairs_has_a_name_for_them(client):
    names = {new_owner_key(): name for name in ("secret-project.tsv", "klasse 9b.csv", "")}
    for owner, name in names.items():
        sha256 = upload(client, TEXT, owner, name)["sha256"]
        assert request_action(client, "use", owner, sha256) == {}
    for owner, name in names.items():
        [stored] = request_action(client, "list", owner)["datasets"]
        assert stored["name"] == (name or "pasted examples")
    assert request_action(client, "use", owner, sha256) == {}  # as by a link
    assert request_action(client, "list", owner)["datasets"][0]["name"] == "pasted examples"


@pytest.mark.parametrize("name", ["hub:ada/words@v1", "words.tsv"])
def test_a_choice_and_the_token_arrive_at_the_reader_of_the_hub(client, monkeypatch, name):
    received = []
    monkeypatch.setattr(
        "playground.hub.dataset_files.read_hub", lambda *values: received.append(values)
    )
    choices = {"config": "de%20x", "split": "test", "hub_token": "hf_typed"}
    with suppress(AttributeError):  # this reader returns nothing
        upload(client, "" if "hub" in name else TEXT, new_owner_key(), name, ("a", "b"), **choices)
    options = ReadOptions(["a", "b"], None, None, "de x", "test")
    assert received == ([(name, options, "hf_typed")] if "hub" in name else [])


def test_headers_name_the_columns(client):
    table = "id,from,to\n" + "".join(f"1,{line}\n" for line in TEXT.replace("\t", ",").split("\n"))
    owner = new_owner_key()
    response = upload(client, table, owner, "rows.csv")
    assert response["columns"] == ["id", "from", "to"]
    assert "name the two with sources and targets" in response["error"]
    named = upload(client, table.rstrip("1,\n"), owner, "rows.csv", ("from", "to"))
    assert named["sha256"] == upload(client, TEXT, owner)["sha256"]


def test_uploaded_code_is_not_executed(client, tmp_path):
    script = tmp_path / "task.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(s): return s\n")
    for name in (f"{script}:f", "task.py", "hub:../../etc/passwd", f"hub:{script}:f"):
        assert "error" in upload(client, script.read_bytes(), new_owner_key(), name)
    assert not (tmp_path / "ran").exists()
    assert stored_files(tmp_path) == []


@pytest.mark.parametrize("owner", ["", "../" * 12])
def test_a_request_without_an_owner_stores_nothing(client, owner):
    assert "reload the page" in upload(client, TEXT, owner)["error"]
    assert "reload the page" in request_action(client, "list", owner)["error"]


@pytest.mark.parametrize("sha256", ["../runs", 5, "Z" * 64])
def test_an_invalid_sha256_is_rejected(client, sha256):
    for action in ("use", "show", "remove"):
        response = request_action(client, action, new_owner_key(), sha256)
        assert response["error"] == "the request names no dataset; upload one first"


def test_an_owner_has_a_quota_of_datasets_and_frees_it_by_removal(client, tmp_path):
    owner, stored = new_owner_key(), []
    for at in range(9):
        # about 0.5 MB when stored
        text = "".join(f"{n:05d}{at}{'0' * 50}\t{'1' * 100}\n" for n in range(1500))
        sha256 = upload(client, text, owner)["sha256"]
        if answer := request_action(client, "use", owner, sha256):
            break
        stored.append(sha256)
    assert answer["error"].endswith("1 MB are possible, so remove some or upload fewer pairs")
    assert not (tmp_path / "rows" / sha256).exists()
    # others have a quota of their own
    other = new_owner_key()
    assert upload(client, text, other)["sha256"] == sha256
    assert request_action(client, "use", other, sha256) == {}
    assert request_action(client, "remove", other, sha256) == {}
    assert request_action(client, "remove", owner, stored[0]) == {}
    # the upload that was read for the preview is stored
    assert request_action(client, "use", owner, sha256) == {}


# Slots and readers


def test_an_upload_times_out_and_each_user_holds_one_slot(handlers, tmp_path):
    owners = [new_owner_key() for _ in range(LIMITS["dataset-uploads"].total)]
    ended, started = [], []

    def endless_request(owner, address="10.0.0.1"):
        async def stream():
            started.append(owner)
            try:
                yield b"a"
                await asyncio.Event().wait()
            finally:
                ended.append(owner)

        client = SimpleNamespace(host=address)
        return SimpleNamespace(headers={"x-owner": owner}, stream=stream, client=client)

    async def upload_concurrently():
        first = [
            asyncio.create_task(handlers.upload(endless_request(owner, f"10.0.0.{n % 2}")))
            for n, owner in enumerate(owners)
        ]
        await until(lambda: len(started) == len(owners))
        rejected = await handlers.upload(endless_request(new_owner_key()))
        second = asyncio.create_task(handlers.upload(endless_request(owners[0], "10.0.0.0")))
        replaced = await first[0]
        await until(lambda: len(started) == len(owners) + 1)
        for transfer in handlers._slots._transfers:
            transfer.deadline.reschedule(0)
        timed_out = await asyncio.gather(*first[1:], second)
        return rejected, replaced, timed_out, len(handlers._slots._transfers)

    rejected, replaced, timed_out, n_transfers = run_in_thread(
        asyncio.wait_for(upload_concurrently(), 60)
    )
    assert rejected.status_code == 503
    assert json.loads(replaced.body) == {"error": "a newer upload replaced this one"}
    assert {json.loads(response.body)["error"] for response in timed_out} == {
        "the upload took longer than 120 s; upload fewer pairs"
    }
    assert (n_transfers, sorted(ended)) == (0, sorted([*owners, owners[0]]))
    assert list((tmp_path / "runs/.scratch").iterdir()) == []


def test_a_preview_does_not_cancel_an_upload_of_the_same_user(handlers, started):
    owner = new_owner_key()

    async def send_requests():
        requests = [{"file": "a"}, {"dataset": "0" * 64}, {"dataset": "1" * 64}]
        tasks = [asyncio.create_task(handlers.read_dataset(owner, request)) for request in requests]
        await until(lambda: len(started) == 2)
        for process in started[:2]:
            process.finish(rows=1)
        await until(lambda: len(started) == 3)
        started[2].finish(rows=2)
        return await asyncio.gather(*tasks)

    upload, replaced, preview = run_in_thread(asyncio.wait_for(send_requests(), 60))
    assert upload == {"rows": 1}
    assert "a newer preview replaced this one" in replaced["error"]
    assert preview == {"rows": 2}


def test_pending_requests_for_stored_datasets_are_limited(handlers, monkeypatch, client_address):
    started, served = [], {"rows": 1}
    monkeypatch.setattr(handlers.library, "require", lambda owner, sha256: None)
    monkeypatch.setattr(ProcessPerJob, "start", lambda executor, job: started.append(job) or True)

    async def show(address):
        client_address.set(address)
        request = {"action": "show", "owner": new_owner_key(), "sha256": "0" * 64}
        return await handlers.act_on_dataset(request)

    async def send_many():
        crowd = [asyncio.create_task(show("192.0.2.9")) for _ in range(20)]
        await until(lambda: sum(task.done() for task in crowd) == 16)
        others = [asyncio.create_task(show(f"192.0.2.{number % 3}")) for number in range(20)]
        await until(lambda: sum(task.done() for task in others) == 16)
        for job in started:  # grows meanwhile
            handlers._read_queue.on_end(job, ("result", served), None)
        return await asyncio.gather(*crowd), await asyncio.gather(*others)

    crowd, others = run_in_thread(asyncio.wait_for(send_many(), 60))
    # one address has half of the slots
    assert (crowd.count(served), others.count(served)) == (4, 4)
    rejected = [response for response in (*crowd, *others) if response != served]
    assert all(response["retryable"] for response in rejected)


@pytest.mark.skipif(
    sys.platform != "linux" or IS_WINDOWS, reason="only Linux holds a process to its memory"
)
def test_reader_process_has_a_memory_limit():
    """Reserve memory without using it, so that a missing limit does not affect the machine."""
    script = """
from playground.server import dataset_reader
dataset_reader._load_dataset = lambda request: bytearray(8 * dataset_reader.MAX_MEMORY_BYTES)
dataset_reader.read_dataset({})
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200
    )
    assert "UserError: these pairs need more memory than is free" in done.stderr
