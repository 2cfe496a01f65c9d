"""Uploads and downloads of checkpoints as zip files; checks run in this process."""

import asyncio
import io
import json
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.checkpoints.manifest import CheckpointError
from playground.errors import UserError
from playground.jobs.admission import CLIENT_ADDRESS, Admission
from playground.jobs.entry import last_message
from playground.jobs.executors import ProcessPerJob
from playground.runs import download_tokens
from playground.runs.download_tokens import DownloadTokens
from playground.runs.inspector_process import validate_checkpoint
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server import checkpoint_transfer
from playground.server.checkpoint_transfer import (
    CHECKPOINT_FILES,
    CHECKPOINT_PATH,
    CheckpointTransfer,
    TemporaryZipResponse,
    TransferSlots,
    extract_checkpoint,
    zip_checkpoint,
)
from playground.server.runs_api import run_action, run_details
from tests.support.coroutines import run_in_thread, until
from tests.support.files import zip_files

ADA = "a" * 32  # an owner key


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A registry that starts no run and no process."""

    def check_in_this_process(executor, job):
        message = last_message(lambda: validate_checkpoint(*job.arguments))
        threading.Thread(target=executor.on_end, args=(job, message, None)).start()
        return True

    monkeypatch.setattr(ProcessPerJob, "start", check_in_this_process)
    registry = Registry(tmp_path / "root")
    yield registry
    registry.shutdown()


@pytest.fixture(scope="module")
def files(trained_checkpoint):
    """The files of a small checkpoint, by name."""
    return {name: (trained_checkpoint / name).read_bytes() for name in CHECKPOINT_FILES}


@pytest.fixture
def run(registry, files, tmp_path):
    """A run of the owner ada with that checkpoint."""
    folder = tmp_path / "sent"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return registry.import_checkpoint(folder, ADA, "my run")


def send(registry, data, owner=None):
    """Upload a file; return the response."""
    headers = {"x-owner": new_owner_key() if owner is None else owner, "x-name": "sent%20here"}
    with TestClient(Starlette(routes=CheckpointTransfer(registry).routes())) as client:
        return client.post(CHECKPOINT_PATH, content=data, headers=headers)


@pytest.mark.parametrize("prefix", ["", "my run/"])
def test_an_imported_archive_becomes_a_run_of_its_owner(registry, files, prefix):
    owner = new_owner_key()
    response = send(registry, zip_files(files, prefix), owner)
    (run,) = registry.list_for_owner(owner)
    assert (response.status_code, response.json()) == (200, {"subject": f"run:{run.id}"})
    assert (run.name, run.step) == ("sent here", 6)
    assert list(registry.storage.scratch.glob("*")) == []


def test_weights_without_training_state_are_accepted(registry, files):
    required = {name: files[name] for name in CHECKPOINT_FILES[:2]}
    assert send(registry, zip_files(required)).status_code == 200


def with_directory_out_of_range(files):
    archive = bytearray(zip_files(files))
    archive[-6:-2] = (len(archive) + 10_000).to_bytes(4, "little")
    return bytes(archive)


HOSTILE = {
    "no zip": (lambda files: b"hello", "it is not a zip file"),
    "directory out of range": (with_directory_out_of_range, "it is not a zip file"),
    "a pickle": (
        lambda files: zip_files(files, **{"pytorch_model.bin": b"x"}),
        "the zip file contains the file 'pytorch_model.bin'",
    ),
    "a file twice": (
        lambda files: zip_files(files, **{"deeper/config.json": files["config.json"]}),
        "a file twice",
    ),
    "huge model": (
        lambda files: zip_files(
            files, **{"config.json": files["config.json"].replace(b'"d_ff": 8', b'"d_ff": 16384')}
        ),
        "model.safetensors",
    ),
    "a million names": (
        lambda files: zip_files(files, **{f"a{n}/": b"" for n in range(300)}),
        "the zip file has too many entries",
    ),
    "unsupported compression": (
        lambda files: zip_files(files, method=zipfile.ZIP_LZMA),
        "unsupported compression",
    ),
    "repeated lines": (
        lambda files: zip_files(files, **{"metrics.jsonl": files["metrics.jsonl"] * 2}),
        "a line for each step",
    ),
    "a zip bomb": (
        lambda files: zip_files(files, **{"metrics.jsonl": b"\n" * 4_000_000}),
        "the unpacked files are too large; at most 3 MB are accepted",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_rejected_and_leaves_no_file(registry, files, monkeypatch, name):
    monkeypatch.setattr(checkpoint_transfer, "MAX_UPLOAD_BYTES", 1_000_000)
    create_archive, expected_message = HOSTILE[name]
    response = send(registry, create_archive(files))
    assert response.status_code == 400
    assert expected_message in response.json()["error"]
    assert str(registry.root) not in response.json()["error"]
    assert list((registry.root / "runs").rglob("*")) == [registry.storage.scratch]


PART = st.text(st.sampled_from("ab./\\~: %\u202e"), max_size=12) | st.sampled_from(
    ["..", "/etc", "C:", *CHECKPOINT_FILES]
)


@given(st.lists(PART, max_size=4), st.lists(PART, max_size=4))
@example(["..", ".."], ["/etc"])
def test_no_member_is_extracted_outside_of_its_folder(tmp_path_factory, first, second):
    parent = tmp_path_factory.mktemp("zip") / "a" / "b"  # `..` stays in the folder of this test
    parent.mkdir(parents=True)
    files = {
        "/".join([*first, "config.json"]): b"{}",
        "/".join([*second, "model.safetensors"]): b"x",
    }
    (parent / "packed").write_bytes(zip_files(files))
    extract_checkpoint(parent / "packed", parent / "inside")
    top = parent.parents[1]
    assert {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()} == {
        "a/b/packed",
        "a/b/inside/config.json",
        "a/b/inside/model.safetensors",
    }


@pytest.mark.parametrize("owner", ["", "short", "x" * 31 + "\u00e9".encode().decode("latin-1")])
def test_an_upload_has_an_owner(registry, files, owner):
    assert send(registry, zip_files(files), owner.encode("latin-1")).status_code == 400


def test_only_the_owner_gets_a_download_token_valid_once(registry, run):
    def request(**fields):
        default = {"subject": f"run:{run.id}", "owner": ADA, "action": "download"}
        return run_in_thread(run_action(registry, default | {"checkpoint": name} | fields))

    name = run.checkpoints()[0][0].name
    assert "error" in request(owner="b" * 32)
    assert "error" in request(checkpoint="../..")
    assert "error" in request(subject=f"watch:{run.share_id}")
    token = request()["ticket"]
    assert registry.download_tokens.redeem(token)[1] is run
    assert registry.download_tokens.redeem(token) is None
    viewed = run_in_thread(run_details(registry, {"subject": f"watch:{run.share_id}"}))
    assert not {"share_id", "checkpoints"} & set(viewed)
    owned = run_in_thread(run_details(registry, {"subject": f"run:{run.id}", "owner": ADA}))
    assert owned["checkpoints"][0]["step"] == 6


def test_zip_and_extract_are_a_round_trip(run, files, tmp_path):
    archive = zip_checkpoint(run.checkpoints()[0][0], run, tmp_path / "new")
    extract_checkpoint(archive, tmp_path / "back")
    back = {path.name: path.read_bytes() for path in (tmp_path / "back").iterdir()}
    lines = [
        [json.loads(line) for line in each.pop("metrics.jsonl").splitlines()]
        for each in (back, dict(files))
    ]
    assert back == {name: data for name, data in files.items() if name != "metrics.jsonl"}
    assert lines[0] == lines[1]


def test_download_tokens_expire_and_those_of_an_address_are_limited(
    monkeypatch, tmp_path, client_address
):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "download-links.per-address=1")
    tokens, issued = DownloadTokens(), []
    for address in ("victim", "many", "many"):
        client_address.set(address)
        issued.append(tokens.issue(tmp_path, object()))
    assert [tokens.redeem(token) is not None for token in issued] == [True, False, True]
    monkeypatch.setattr(download_tokens, "TOKEN_TTL_S", -1.0)
    assert tokens.redeem(tokens.issue(tmp_path, object())) is None
    assert tokens.redeem("nothing") is None


# Slots: a slow transfer is ended


async def request_app(app, method, path, receive, send=None, address="10.0.0.1"):
    """Return the status and text of the response to a client with these functions."""
    messages = []

    async def record(message):
        messages.append(message)
        if send:
            await send(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(b"x-owner", new_owner_key().encode())],
    }
    CLIENT_ADDRESS.set(address)
    await app(scope, receive, record)
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages)


async def receive_all():
    return {"type": "http.request", "body": b"", "more_body": False}


async def receive_nothing():
    await asyncio.Event().wait()


def end_transfers(slots):
    """Let the time limit of every transfer expire."""
    for transfer in slots._transfers:
        transfer.deadline.reschedule(0)


def test_a_slow_upload_loses_its_slot_after_a_timeout(registry, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "uploads.total=1")

    async def upload_concurrently():
        transfer, is_receiving = CheckpointTransfer(registry), asyncio.Event()

        async def receive_slowly():
            is_receiving.set()
            await receive_nothing()

        def upload(receive):
            app = Starlette(routes=transfer.routes())
            return request_app(app, "POST", CHECKPOINT_PATH, receive)

        slow_upload = asyncio.create_task(upload(receive_slowly))
        await is_receiving.wait()
        concurrent = await upload(receive_all)
        end_transfers(transfer.uploads)
        return concurrent, await slow_upload, await upload(receive_all)

    concurrent, timed_out, after = run_in_thread(upload_concurrently())
    assert concurrent[0] == 503
    assert (timed_out[0], json.loads(timed_out[1])["error"]) == (
        408,
        "the upload took longer than 300 s; use a faster connection",
    )
    assert (after[0], json.loads(after[1])["error"]) == (
        400,
        "it is not a zip file; upload one that Download created",
    )
    assert list(registry.storage.scratch.glob("*")) == []


def test_a_check_that_hangs_is_ended(registry, files, monkeypatch):
    killed = []
    monkeypatch.setattr(checkpoint_transfer, "VALIDATION_TIMEOUT_S", 0.1)
    monkeypatch.setattr(ProcessPerJob, "start", lambda executor, job: True)
    monkeypatch.setattr(ProcessPerJob, "kill", lambda executor, job: killed.append(job.kind))
    response = send(registry, zip_files(files))
    assert (response.status_code, response.json()["error"]) == (
        400,
        "this took longer than 0.1 s and was ended; upload a smaller model",
    )
    assert "check" in killed  # the patch also holds for queues of other tests


def test_unread_downloads_lose_their_slots_after_a_timeout(registry, run, monkeypatch):
    scratch = registry.storage.scratch
    monkeypatch.setenv("PLAYGROUND_LIMITS", "downloads.total=2")

    async def download_concurrently():
        transfer, unread_count = CheckpointTransfer(registry), asyncio.Semaphore(0)
        app = Starlette(routes=transfer.routes())

        async def block_on_body(message):
            if message["type"] == "http.response.body":
                unread_count.release()
                await receive_nothing()

        def download(send=None, address="10.0.0.9"):
            ticket = registry.download_tokens.issue(run.checkpoints()[0][0], run)
            path = f"{CHECKPOINT_PATH}/{ticket}"
            return request_app(app, "GET", path, receive_nothing, send, address)

        slow = [
            asyncio.create_task(download(block_on_body, f"10.0.0.{number}")) for number in range(2)
        ]
        for _ in slow:
            await unread_count.acquire()
        n_archives = len(list(scratch.glob("*/*.zip")))
        rejected = await download()
        end_transfers(transfer.downloads)
        await asyncio.gather(*slow)
        return n_archives, rejected, list(scratch.iterdir()), await download()

    n_archives, rejected, remaining, after = run_in_thread(download_concurrently())
    assert (n_archives, remaining, list(scratch.iterdir())) == (2, [], [])
    assert rejected == (
        503,
        b"this server has 2 downloads, which is the maximum; try again in a moment",
    )
    assert after[0] == 200
    assert set(zipfile.ZipFile(io.BytesIO(after[1])).namelist()) == set(CHECKPOINT_FILES)


def download_of(pack, slots, folder="unused"):
    """Return a response whose `pack` runs in a thread of its own."""
    start = ThreadPoolExecutor(1).submit
    return TemporaryZipResponse(slots, lambda path: start(pack, path), Path(folder), "x.zip")


def test_a_download_that_ends_while_it_is_packed_leaves_no_file(tmp_path):
    release, is_packed = threading.Event(), threading.Event()

    def pack(folder):
        release.wait(20)
        folder.mkdir()
        is_packed.set()
        return folder / "packed.zip"

    async def download_and_disconnect():
        slots = TransferSlots(Admission(total=1), 0.05)
        response = download_of(pack, slots, tmp_path / "new")
        await response({"type": "http"}, None, None)
        async with slots.hold("b"):  # the slot is free
            release.set()
        await until(lambda: is_packed.is_set() and not list(tmp_path.iterdir()))

    run_in_thread(download_and_disconnect())


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (FileNotFoundError(2, "No such file", "/secret/x"), 404, b"was deleted or is damaged"),
        (CheckpointError("config.json is damaged"), 404, b"was deleted or is damaged"),
        (OSError(28, "No space left on device", "/secret/x"), 507, b"No space left on device"),
        (PermissionError(13, "Permission denied", "/secret/x"), 507, b"Permission denied"),
    ],
    ids=["deleted", "damaged", "full", "read-only"],
)
def test_a_download_that_cannot_be_packed_has_the_reason(error, status, text):
    messages = []

    async def send(message):
        messages.append(message)

    def pack(folder):
        raise error

    response = download_of(pack, TransferSlots(Admission(total=1), 20))
    run_in_thread(response({"type": "http"}, None, send))
    assert messages[0]["status"] == status
    assert text in messages[1]["body"]
    assert b"/secret" not in messages[1]["body"]


def test_a_download_is_not_slow_while_it_is_packed(monkeypatch):
    started, messages = time.monotonic, []

    async def download():
        slots = TransferSlots(Admission(total=1), 20)
        monkeypatch.setattr(time, "monotonic", lambda: started() + 10 * len(slots._transfers))

        def pack(folder):
            with pytest.raises(UserError, match="which is the maximum"):
                run_in_thread(slots.hold("b").__aenter__())
            raise FileNotFoundError("deleted")

        async def send(message):
            messages.append(message)

        response = download_of(pack, slots)
        await response({"type": "http"}, None, send)

    run_in_thread(download())
    assert messages[0]["status"] == 404


def test_slots_are_capped_per_address_and_fast_transfers_continue():
    async def hold_slots():
        slots = TransferSlots(Admission(total=4), 60)
        async with slots.hold("a") as first, slots.hold("a") as second:
            for transfer in (first, second):
                transfer.bytes += 10**9
                transfer.started_at -= 10
            with pytest.raises(UserError, match="which is the maximum"):
                await slots.hold("a").__aenter__()
            async with slots.hold("b"):
                return first.reason + second.reason

    assert run_in_thread(hold_slots()) == ""


@pytest.mark.parametrize(("address", "ended_address"), [("a", "a"), ("c", "b")])
def test_slowest_transfer_is_ended_for_a_new_one(address, ended_address):
    async def hold_slots():
        slots, ended = TransferSlots(Admission(total=2), 60), []

        async def transfer_slowly(address, size):
            try:
                async with slots.hold(address) as transfer:
                    transfer.started_at -= 10
                    transfer.bytes += size
                    await asyncio.Event().wait()
            except TimeoutError:
                ended.append((address, transfer.reason))

        slow = [
            asyncio.create_task(transfer_slowly("a", 50)),
            asyncio.create_task(transfer_slowly("b", 10)),
        ]
        await asyncio.sleep(0)
        async with slots.hold(address):
            _, remaining = await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED)
        for task in remaining:
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)
        return ended

    ((address, reason),) = run_in_thread(hold_slots())
    assert address == ended_address
    assert "too slow" in reason


def test_complete_transfer_keeps_its_slot():
    async def hold_slot():
        slots = TransferSlots(Admission(total=1), 0.01)
        async with slots.hold("a") as transfer:
            transfer.started_at -= 10
            transfer.complete()
            assert transfer.deadline.when() is None
            with pytest.raises(UserError):
                await slots.hold("b").__aenter__()

    run_in_thread(hold_slot())
