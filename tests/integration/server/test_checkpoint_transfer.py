import asyncio
import io
import json
import os
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile

import pytest
from starlette.applications import Starlette

from playground.checkpoints.checkpoint import save_checkpoint
from playground.errors import UserError
from playground.jobs.executors import ProcessPerJob
from playground.runs import download_tokens as download_tokens
from playground.runs.download_tokens import DownloadTokens
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server.checkpoint_transfer import (
    CHECKPOINT_FILES,
    CHECKPOINT_PATH,
    CheckpointTransfer,
    TemporaryZipResponse,
    extract_checkpoint,
    zip_checkpoint,
)
from playground.server.runs_api import list_runs, run_action, run_details
from playground.server.transfer_slots import TransferSlots
from playground.training.config import RunConfig
from playground.training.trainer import Trainer
from tests.support.app_server import AppServer
from tests.support.coroutines import run_in_thread

FIELDS = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 16,
    "batch_size": 8,
    "max_length": 5,
    "eval_size": 32,
    "max_steps": 6,
}


def create_app(registry):
    """Create an app with only the checkpoint routes."""
    return Starlette(routes=CheckpointTransfer(registry).routes())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the files of a small checkpoint at step 4, by name."""
    trainer = Trainer(RunConfig.from_flat(FIELDS))
    metrics = [trainer.train_step() for _ in range(4)]
    folder = tmp_path_factory.mktemp("made") / "x"
    save_checkpoint(folder, trainer, metrics)
    return {name: (folder / name).read_bytes() for name in CHECKPOINT_FILES}


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    server = AppServer(tmp_path_factory.mktemp("app"))
    yield server
    server.stop()


def zip_files(files, prefix="", method=zipfile.ZIP_DEFLATED, **changes):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in (files | changes).items():
            archive.writestr(prefix + name, data)
    return buffer.getvalue()


def send(app, data, owner=None, **headers):
    """Upload a file; return the status and JSON of the response."""
    request_headers = {
        "x-owner": new_owner_key() if owner is None else owner,
        "x-name": "sent%20here",
    } | headers
    request = urllib.request.Request(
        app.url + CHECKPOINT_PATH, data, request_headers, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as request_app:
            return request_app.status, json.loads(request_app.read())
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text) if text.startswith("{") else {"error": text}


def leftovers(app):
    return list((app.checkpoints / "runs").glob(".*.tmp"))


@pytest.mark.smoke
@pytest.mark.parametrize("prefix", ["", "my run/"])
def test_an_imported_archive_becomes_a_run_of_its_owner(app, files, prefix):
    status, request_app = send(app, zip_files(files, prefix))
    assert (status, list(request_app)) == (200, ["subject"])
    assert request_app["subject"].startswith("run:")
    assert leftovers(app) == []


def test_weights_without_training_state_are_accepted(app, files):
    files_without_state = {name: files[name] for name in ("config.json", "model.safetensors")}
    assert send(app, zip_files(files_without_state))[0] == 200


def with_directory_out_of_range(files):
    archive = bytearray(zip_files(files))
    archive[-6:-2] = (len(archive) + 10_000).to_bytes(4, "little")
    return bytes(archive)


HOSTILE = {
    "no zip": (lambda files: b"hello", "it is not a zip file"),
    "directory out of range": (with_directory_out_of_range, "it is not a zip file"),
    "unexpected file": (
        lambda files: zip_files(files, **{"evil.py": b"x"}),
        "the zip file contains the file 'evil.py'",
    ),
    "a pickle": (
        lambda files: zip_files(files, **{"pytorch_model.bin": b"x"}),
        "the zip file contains the file",
    ),
    "a file twice": (
        lambda files: zip_files(files, **{"deeper/config.json": files["config.json"]}),
        "a file twice",
    ),
    "huge model": (
        lambda files: zip_files(
            files, **{"config.json": files["config.json"].replace(b'"d_ff": 16', b'"d_ff": 16384')}
        ),
        "model.safetensors",
    ),
    "cut state": (
        lambda files: zip_files(
            files, **{"training.safetensors": files["training.safetensors"][:-9]}
        ),
        "training.safetensors is not a complete",
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
        lambda files: zip_files(files, **{"metrics.jsonl": b"\n" * 200_000_000}),
        "the unpacked files are too large; at most 150 MB are accepted",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_checkpoint_upload_is_rejected_and_leaves_no_files(app, files, name):
    create_archive, expected_message = HOSTILE[name]
    before = sorted((app.checkpoints / "runs").glob("*"))
    status, request_app = send(app, create_archive(files))
    assert status == 400
    assert expected_message in request_app["error"]
    assert str(app.checkpoints) not in request_app["error"]
    assert sorted((app.checkpoints / "runs").glob("*")) == before
    assert leftovers(app) == []


def test_an_upload_has_an_owner(app, files):
    for owner in ("", "short", "x" * 31 + "\u00e9".encode().decode("latin-1")):
        assert send(app, zip_files(files), owner=owner)[0] == 400


def test_an_upload_over_the_limit_is_rejected_before_its_body(app):
    assert send(app, b"x", **{"content-length": "90000000"})[0] == 413


@pytest.mark.smoke
def test_only_the_owner_gets_a_download_token_valid_once(tmp_path, files):
    registry = Registry(tmp_path)
    (tmp_path / "sent").mkdir()
    for name, data in files.items():
        (tmp_path / "sent" / name).write_bytes(data)
    run = registry.import_checkpoint(tmp_path / "sent", "ada", "my run")
    name = run.checkpoints()[0][0].name
    download_request = {"subject": f"run:{run.id}", "action": "download", "checkpoint": name}
    assert "error" in run_in_thread(run_action(registry, download_request | {"owner": "bob"}))
    assert "error" in run_in_thread(
        run_action(registry, download_request | {"owner": "ada", "checkpoint": "../.."})
    )
    assert "error" in run_in_thread(
        run_action(
            registry,
            {
                "subject": f"watch:{run.share_id}",
                "owner": "ada",
                "action": "download",
                "checkpoint": name,
            },
        )
    )
    token = run_in_thread(run_action(registry, download_request | {"owner": "ada"}))["ticket"]
    assert registry.download_tokens.redeem(token)[1] is run
    assert registry.download_tokens.redeem(token) is None
    request_app = run_in_thread(run_details(registry, {"subject": f"watch:{run.share_id}"}))
    assert "share_id" not in request_app
    assert "checkpoints" not in request_app
    assert (
        run_in_thread(run_details(registry, {"subject": f"run:{run.id}", "owner": "ada"}))[
            "checkpoints"
        ][0]["step"]
        == 4
    )
    registry.shutdown()


@pytest.mark.parametrize(
    "owner",
    ["short", "\u00e9" * 32],
    ids=("short", "foreign"),
)
def test_invalid_owner_key_is_rejected(tmp_path, owner):
    registry = Registry(tmp_path)
    assert run_in_thread(list_runs(registry, {"owner": owner}))["runs"] == []
    assert registry.owner_last_seen == {}
    run_in_thread(list_runs(registry, {"owner": new_owner_key()}))
    assert len(registry.owner_last_seen) == 1
    registry.shutdown()


def test_zip_and_extract_are_a_round_trip(tmp_path, files):
    registry = Registry(tmp_path)
    (tmp_path / "sent").mkdir()
    for name, data in files.items():
        (tmp_path / "sent" / name).write_bytes(data)
    run = registry.import_checkpoint(tmp_path / "sent", "ada", "my run")
    archive = zip_checkpoint(run.checkpoints()[0][0], run)
    extract_checkpoint(archive, tmp_path / "back")
    os.unlink(archive)
    for name in ("config.json", "model.safetensors", "training.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == files[name]
    lines = [
        json.loads(line) for line in (tmp_path / "back" / "metrics.jsonl").read_text().splitlines()
    ]
    assert lines == [json.loads(line) for line in files["metrics.jsonl"].splitlines()]
    registry.shutdown()


def test_download_tokens_expire(monkeypatch, tmp_path):
    tokens = DownloadTokens()
    monkeypatch.setattr(download_tokens, "TOKEN_TTL_S", -1.0)
    assert tokens.redeem(tokens.issue(tmp_path, object())) is None
    assert tokens.redeem("nothing") is None


def test_download_needs_a_token(app):
    assert app.get(CHECKPOINT_PATH + "/guess")[0] == 404
    assert app.get(CHECKPOINT_PATH + "/..%2f..%2fconfig.json")[0] in (404, 405)


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
        "client": (address, 1),
    }
    await app(scope, receive, record)
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages)


async def receive_all(body=b""):
    return {"type": "http.request", "body": body, "more_body": False}


async def receive_nothing():
    await asyncio.Event().wait()


async def receive_slowly():
    await asyncio.sleep(0.01)
    return {"type": "http.request", "body": b"P", "more_body": True}


def test_a_slow_upload_loses_its_slot_after_a_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr("playground.server.checkpoint_transfer.MAX_CONCURRENT_UPLOADS", 1)
    monkeypatch.setattr("playground.server.checkpoint_transfer.UPLOAD_TIMEOUT_S", 2)
    registry = Registry(tmp_path)

    async def upload_concurrently():
        app = create_app(registry)
        slow_upload = asyncio.create_task(request_app(app, "POST", CHECKPOINT_PATH, receive_slowly))
        await asyncio.sleep(0.1)
        concurrent = await request_app(app, "POST", CHECKPOINT_PATH, receive_all)
        timed_out = await asyncio.wait_for(slow_upload, 20)
        return concurrent, timed_out, await request_app(app, "POST", CHECKPOINT_PATH, receive_all)

    concurrent, timed_out, after = run_in_thread(upload_concurrently())
    registry.shutdown()
    assert concurrent[0] == 503
    assert (timed_out[0], json.loads(timed_out[1])["error"]) == (
        408,
        "the upload took longer than 2 s; use a faster connection",
    )
    assert (after[0], json.loads(after[1])["error"]) == (
        400,
        "it is not a zip file; upload one that Download created",
    )
    assert list((tmp_path / "runs").glob(".*.tmp")) == []


def test_a_check_that_hangs_is_ended_so_that_the_next_upload_is_checked(
    tmp_path, files, monkeypatch
):
    monkeypatch.setattr("playground.server.checkpoint_transfer.VALIDATION_TIMEOUT_S", 0.5)
    registry, killed = Registry(tmp_path), []
    monkeypatch.setattr(ProcessPerJob, "start", lambda executor, job: True)
    monkeypatch.setattr(ProcessPerJob, "kill", lambda executor, job: killed.append(job.kind))

    async def receive_archive():
        return await receive_all(zip_files(files))

    status, text = run_in_thread(
        request_app(
            create_app(registry),
            "POST",
            CHECKPOINT_PATH,
            receive_archive,
        )
    )
    registry.shutdown()
    assert (status, json.loads(text)["error"]) == (
        400,
        "this took longer than 0.5 s and was ended; upload a smaller model",
    )
    assert killed[:1] == ["check"]


def test_unread_downloads_lose_their_slots_after_a_timeout(tmp_path, files, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr("playground.server.checkpoint_transfer.MAX_CONCURRENT_DOWNLOADS", 2)
    monkeypatch.setattr("playground.server.checkpoint_transfer.DOWNLOAD_TIMEOUT_S", 2)
    registry = Registry(tmp_path / "here")
    (tmp_path / "sent").mkdir()
    for name, data in files.items():
        (tmp_path / "sent" / name).write_bytes(data)
    run = registry.import_checkpoint(tmp_path / "sent", "ada", "my run")

    async def download_concurrently():
        app, unread_count = (
            create_app(registry),
            asyncio.Semaphore(0),
        )

        async def block_on_body(message):
            if message["type"] == "http.response.body":
                unread_count.release()
                await receive_nothing()

        def download(send=None, address="10.0.0.9"):
            ticket = registry.download_tokens.issue(run.checkpoints()[0][0], run)
            return request_app(
                app, "GET", f"{CHECKPOINT_PATH}/{ticket}", receive_nothing, send, address
            )

        slow = [
            asyncio.create_task(download(block_on_body, f"10.0.0.{number}")) for number in range(2)
        ]
        for _ in slow:
            await asyncio.wait_for(unread_count.acquire(), 60)
        n_archives = len(list(temporary.glob("*.zip")))
        rejected = await download()
        await asyncio.wait_for(asyncio.gather(*slow), 20)
        remaining = list(temporary.iterdir())
        monkeypatch.setattr("playground.server.checkpoint_transfer.DOWNLOAD_TIMEOUT_S", 600)
        return n_archives, rejected, remaining, await download()

    n_archives, rejected, remaining, after = run_in_thread(download_concurrently())
    registry.shutdown()
    assert (n_archives, remaining, list(temporary.iterdir())) == (2, [], [])
    assert rejected == (503, b"other downloads are in progress; try again in a moment")
    assert after[0] == 200
    assert set(zipfile.ZipFile(io.BytesIO(after[1])).namelist()) == set(CHECKPOINT_FILES)


# Slots: a slow transfer is ended


def create_slots(slots, seconds=60.0):
    return TransferSlots(slots, seconds, "busy")


def test_a_download_that_ends_while_it_is_packed_leaves_no_file(tmp_path):
    zip_path, release, is_packed = tmp_path / "packed.zip", threading.Event(), threading.Event()

    def pack():
        release.wait(20)
        zip_path.write_bytes(b"zip")
        is_packed.set()
        return zip_path

    async def download_and_disconnect():
        slots = TransferSlots(1, 0.05, "busy")
        request_app = TemporaryZipResponse(slots, "a", lambda: asyncio.to_thread(pack), "x.zip")
        await request_app({"type": "http"}, None, None)
        async with slots.hold("b"):  # the slot is free
            release.set()
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        await asyncio.to_thread(is_packed.wait, 20)

    run_in_thread(download_and_disconnect())
    assert is_packed.is_set()
    assert not zip_path.exists()


def test_a_download_is_not_slow_while_it_is_packed():
    async def download():
        slots = TransferSlots(1, 20, "busy")

        async def pack():
            with pytest.raises(UserError, match="busy"):
                await slots.hold("b").__aenter__()
            raise FileNotFoundError("deleted")

        messages = []

        async def send(message):
            messages.append(message)

        started = time.monotonic
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: started() + 10 * len(slots._transfers))
            request_app = TemporaryZipResponse(slots, "a", pack, "x.zip")
            await request_app({"type": "http"}, None, send)
        return messages[0]["status"]

    assert run_in_thread(download()) == 404


def test_slots_are_capped_per_address_and_fast_transfers_continue():
    async def hold_slots():
        slots = create_slots(4)
        async with slots.hold("a") as first, slots.hold("a") as second:
            for transfer in (first, second):
                transfer.add_bytes(10**9)
                transfer.started_at -= 10
            with pytest.raises(UserError, match="busy"):
                await slots.hold("a").__aenter__()
            async with slots.hold("b"):
                return first.reason + second.reason

    assert run_in_thread(hold_slots()) == ""


@pytest.mark.parametrize("same_address", [True, False])
def test_slowest_transfer_is_ended_for_a_new_one(same_address):
    async def hold_slots():
        slots, ended = create_slots(2), []

        async def transfer_slowly(address, size):
            try:
                async with slots.hold(address) as transfer:
                    transfer.started_at -= 10
                    transfer.add_bytes(size)
                    await asyncio.Event().wait()
            except TimeoutError:
                ended.append((address, transfer.reason))

        slow = [
            asyncio.create_task(transfer_slowly("a", 50)),
            asyncio.create_task(transfer_slowly("b", 10)),
        ]
        await asyncio.sleep(0)
        async with slots.hold("a" if same_address else "c"):
            await asyncio.sleep(0.01)
            remaining = [task for task in slow if not task.done()]
        for task in remaining:
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)
        return ended

    ((address, reason),) = run_in_thread(hold_slots())
    assert address == ("a" if same_address else "b")
    assert "too slow" in reason


def test_complete_transfer_keeps_its_slot():
    async def hold_slot():
        slots = create_slots(1, seconds=0.01)
        async with slots.hold("a") as transfer:
            transfer.started_at -= 10
            transfer.complete()
            await asyncio.sleep(0.05)  # longer than its deadline
            with pytest.raises(UserError):
                await slots.hold("b").__aenter__()

    run_in_thread(hold_slot())
