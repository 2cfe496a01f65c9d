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
from contextlib import suppress

import pytest
from starlette.applications import Starlette

from playground.checkpoints.checkpoint import save_checkpoint
from playground.errors import UserError
from playground.jobs.executors import ProcessPerJob
from playground.runs import download_tokens as tickets_module
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


def served_by(registry):
    """Return an app with only the routes of checkpoints."""
    return Starlette(routes=CheckpointTransfer(registry).routes())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of a small checkpoint of step 4, by name."""
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


def zipped(files, prefix="", method=zipfile.ZIP_DEFLATED, **more):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, data in (files | more).items():
            archive.writestr(prefix + name, data)
    return packed.getvalue()


def send(app, data, owner=None, **headers):
    """Upload a file; return status and JSON."""
    inputs = {
        "x-owner": new_owner_key() if owner is None else owner,
        "x-name": "sent%20here",
    } | headers
    request = urllib.request.Request(app.url + CHECKPOINT_PATH, data, inputs, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text) if text.startswith("{") else {"error": text}


def in_line(work):
    return run_in_thread(work)


def leftovers(app):
    return list((app.checkpoints / "runs").glob(".*.tmp"))


@pytest.mark.smoke
@pytest.mark.parametrize("prefix", ["", "my run/"])
def test_an_imported_archive_becomes_a_run_of_its_owner(app, files, prefix):
    status, answer = send(app, zipped(files, prefix))
    assert (status, list(answer)) == (200, ["subject"])
    assert answer["subject"].startswith("run:")
    assert leftovers(app) == []


def test_weights_alone_are_accepted_too(app, files):
    few = {name: files[name] for name in ("config.json", "model.safetensors")}
    assert send(app, zipped(few))[0] == 200


HOSTILE = {
    "no zip": (lambda files: b"hello", "it is not a zip file"),
    "empty": (lambda files: zipped({}), "the zip file lacks config.json"),
    "another file": (
        lambda files: zipped(files, **{"evil.py": b"x"}),
        "the zip file contains the file 'evil.py'",
    ),
    "a pickle": (
        lambda files: zipped(files, **{"pytorch_model.bin": b"x"}),
        "the zip file contains the file",
    ),
    "a file twice": (
        lambda files: zipped(files, **{"deeper/config.json": files["config.json"]}),
        "a file twice",
    ),
    "broken config": (
        lambda files: zipped(files, **{"config.json": b"{"}),
        "config.json is not the JSON",
    ),
    "huge model": (
        lambda files: zipped(
            files, **{"config.json": files["config.json"].replace(b'"d_ff": 16', b'"d_ff": 16384')}
        ),
        "model.safetensors",
    ),
    "cut weights": (
        lambda files: zipped(files, **{"model.safetensors": files["model.safetensors"][:-9]}),
        "model.safetensors is not a complete",
    ),
    "cut state": (
        lambda files: zipped(files, **{"training.safetensors": files["training.safetensors"][:-9]}),
        "training.safetensors is not a complete",
    ),
    "missing steps": (
        lambda files: zipped(files, **{"metrics.jsonl": files["metrics.jsonl"].split(b"\n", 1)[1]}),
        "metrics.jsonl does not hold a line for each step",
    ),
    "a million names": (
        lambda files: zipped(files, **{f"a{n}/": b"" for n in range(300)}),
        "the zip file has too many entries",
    ),
    "another packing": (
        lambda files: zipped(files, method=zipfile.ZIP_LZMA),
        "unsupported compression",
    ),
    "a line too many": (
        lambda files: zipped(files, **{"metrics.jsonl": files["metrics.jsonl"] * 2}),
        "a line for each step",
    ),
    "half a line": (
        lambda files: zipped(files, **{"metrics.jsonl": files["metrics.jsonl"][:-1]}),
        "a line for each step",
    ),
    "absurd figures": (
        lambda files: zipped(
            files,
            **{
                "metrics.jsonl": files["metrics.jsonl"].replace(
                    b'"seconds": ', b'"seconds": ' + b"9" * 400
                )
            },
        ),
        "metrics.jsonl",
    ),
    "lines without figures": (
        lambda files: zipped(
            files,
            **{"metrics.jsonl": b"".join(b'{"step": %d, "loss": 1}\n' % n for n in range(1, 5))},
        ),
        "these are not the metrics of a step",
    ),
    "a zip bomb": (
        lambda files: zipped(files, **{"metrics.jsonl": b"\n" * 200_000_000}),
        "the unpacked files are too large; at most 150 MB are accepted",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_checkpoint_upload_is_rejected_and_leaves_no_files(app, files, name):
    make, expected_message = HOSTILE[name]
    before = sorted((app.checkpoints / "runs").glob("*"))
    status, answer = send(app, make(files))
    assert status == 400
    assert expected_message in answer["error"]
    assert str(app.checkpoints) not in answer["error"]
    assert sorted((app.checkpoints / "runs").glob("*")) == before
    assert leftovers(app) == []


@pytest.mark.parametrize("name", ["../../evil/config.json", "/etc/config.json", "..\\config.json"])
def test_a_name_that_leads_elsewhere_leads_nowhere(tmp_path, files, name):
    (tmp_path / "packed.zip").write_bytes(
        zipped({name: files["config.json"], "model.safetensors": files["model.safetensors"]})
    )
    with suppress(UserError):
        extract_checkpoint(tmp_path / "packed.zip", tmp_path / "inside")
    actual = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert actual <= {"packed.zip", "inside/config.json", "inside/model.safetensors"}


def test_an_upload_has_an_owner(app, files):
    for owner in ("", "short", "x" * 31 + "\u00e9".encode().decode("latin-1")):
        assert send(app, zipped(files), owner=owner)[0] == 400


def test_an_upload_over_the_limit_is_rejected_before_its_body(app):
    assert send(app, b"x", **{"content-length": "90000000"})[0] == 413


@pytest.mark.smoke
def test_only_the_owner_gets_a_download_token_valid_once(tmp_path, files):
    registry = Registry(tmp_path)
    (tmp_path / "sent").mkdir()
    for name, data in files.items():
        (tmp_path / "sent" / name).write_bytes(data)
    run = registry.import_checkpoint(tmp_path / "sent", "ada", "mine")
    name = run.checkpoints()[0][0].name
    want = {"subject": f"run:{run.id}", "action": "download", "checkpoint": name}
    assert "error" in in_line(run_action(registry, want | {"owner": "bob"}))
    assert "error" in in_line(run_action(registry, want | {"owner": "ada", "checkpoint": "../.."}))
    assert "error" in in_line(
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
    ticket = in_line(run_action(registry, want | {"owner": "ada"}))["ticket"]
    assert registry.download_tokens.redeem(ticket)[1] is run
    assert registry.download_tokens.redeem(ticket) is None
    response = in_line(run_details(registry, {"subject": f"watch:{run.share_id}"}))
    assert "share_id" not in response
    assert "checkpoints" not in response
    assert (
        in_line(run_details(registry, {"subject": f"run:{run.id}", "owner": "ada"}))["checkpoints"][
            0
        ]["step"]
        == 4
    )
    registry.shutdown()


@pytest.mark.parametrize(
    "owner",
    ["short", "x" * 33, "\u00e9" * 32, "x" * 100_000],
    ids=("short", "long", "foreign", "huge"),
)
def test_another_key_is_not_accepted_as_the_owner(tmp_path, owner):
    registry = Registry(tmp_path)
    assert in_line(list_runs(registry, {"owner": owner}))["runs"] == []
    assert registry.owner_last_seen == {}
    in_line(list_runs(registry, {"owner": new_owner_key()}))
    assert len(registry.owner_last_seen) == 1
    registry.shutdown()


def test_packing_and_unpacking_is_a_round_trip(tmp_path, files):
    registry = Registry(tmp_path)
    (tmp_path / "sent").mkdir()
    for name, data in files.items():
        (tmp_path / "sent" / name).write_bytes(data)
    run = registry.import_checkpoint(tmp_path / "sent", "ada", "mine")
    packed = zip_checkpoint(run.checkpoints()[0][0], run)
    extract_checkpoint(packed, tmp_path / "back")
    os.unlink(packed)
    for name in ("config.json", "model.safetensors", "training.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == files[name]
    lines = [
        json.loads(line) for line in (tmp_path / "back" / "metrics.jsonl").read_text().splitlines()
    ]
    assert lines == [json.loads(line) for line in files["metrics.jsonl"].splitlines()]
    registry.shutdown()


def test_tickets_grow_old(monkeypatch, tmp_path):
    tickets = DownloadTokens()
    monkeypatch.setattr(tickets_module, "TOKEN_TTL_S", -1.0)
    assert tickets.redeem(tickets.issue(tmp_path, object())) is None
    assert tickets.redeem("nothing") is None


def test_a_download_needs_a_ticket(app):
    assert app.get(CHECKPOINT_PATH + "/guess")[0] == 404
    assert app.get(CHECKPOINT_PATH + "/..%2f..%2fconfig.json")[0] in (404, 405)


async def response(served, method, path, receive, send=None, address="10.0.0.1"):
    """Return the status and text of the response to a client that sends and receives with these
    functions.
    """
    answer = []

    async def record(message):
        answer.append(message)
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
    await served(scope, receive, record)
    return answer[0]["status"], b"".join(message.get("body", b"") for message in answer)


async def whole(body=b""):
    return {"type": "http.request", "body": body, "more_body": False}


async def nothing_more():
    await asyncio.Event().wait()


async def trickle():
    await asyncio.sleep(0.01)
    return {"type": "http.request", "body": b"P", "more_body": True}


def test_a_slow_upload_loses_its_slot_after_a_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr("playground.server.checkpoint_transfer.MAX_CONCURRENT_UPLOADS", 1)
    monkeypatch.setattr("playground.server.checkpoint_transfer.UPLOAD_TIMEOUT_S", 2)
    registry = Registry(tmp_path)

    async def scene():
        served = served_by(registry)
        slow = asyncio.create_task(response(served, "POST", CHECKPOINT_PATH, trickle))
        await asyncio.sleep(0.1)
        beside = await response(served, "POST", CHECKPOINT_PATH, whole)
        late = await asyncio.wait_for(slow, 20)
        return beside, late, await response(served, "POST", CHECKPOINT_PATH, whole)

    beside, late, after = in_line(scene())
    registry.shutdown()
    assert beside[0] == 503
    assert (late[0], json.loads(late[1])["error"]) == (
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

    async def all_of_it():
        return await whole(zipped(files))

    status, text = in_line(
        response(
            served_by(registry),
            "POST",
            CHECKPOINT_PATH,
            all_of_it,
        )
    )
    registry.shutdown()
    assert (status, json.loads(text)["error"]) == (
        400,
        "this took longer than 0.5 s and was ended; upload a smaller model",
    )
    assert killed[:1] == ["check"]


def test_unread_downloads_hold_their_slots_only_for_a_time(tmp_path, files, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr("playground.server.checkpoint_transfer.MAX_CONCURRENT_DOWNLOADS", 2)
    monkeypatch.setattr("playground.server.checkpoint_transfer.DOWNLOAD_TIMEOUT_S", 2)
    registry = Registry(tmp_path / "here")
    (tmp_path / "sent").mkdir()
    for name, data in files.items():
        (tmp_path / "sent" / name).write_bytes(data)
    run = registry.import_checkpoint(tmp_path / "sent", "ada", "mine")

    async def scene():
        served, unread = (
            served_by(registry),
            asyncio.Semaphore(0),
        )

        async def full(message):
            if message["type"] == "http.response.body":
                unread.release()
                await nothing_more()

        def download(send=None, address="10.0.0.9"):
            ticket = registry.download_tokens.issue(run.checkpoints()[0][0], run)
            return response(
                served, "GET", f"{CHECKPOINT_PATH}/{ticket}", nothing_more, send, address
            )

        slow = [asyncio.create_task(download(full, f"10.0.0.{number}")) for number in range(2)]
        for _ in slow:
            await asyncio.wait_for(unread.acquire(), 60)
        packed = len(list(temporary.glob("*.zip")))
        refused = await download()
        await asyncio.wait_for(asyncio.gather(*slow), 20)
        left = list(temporary.iterdir())
        monkeypatch.setattr("playground.server.checkpoint_transfer.DOWNLOAD_TIMEOUT_S", 600)
        return packed, refused, left, await download()

    packed, refused, left, after = in_line(scene())
    registry.shutdown()
    assert (packed, left, list(temporary.iterdir())) == (2, [], [])
    assert refused == (503, b"other downloads are in progress; try again in a moment")
    assert after[0] == 200
    assert set(zipfile.ZipFile(io.BytesIO(after[1])).namelist()) == set(CHECKPOINT_FILES)


# Slots: a slow transfer gives way


def held(slots, seconds=60.0):
    return TransferSlots(slots, seconds, "busy")


def test_a_download_that_ends_while_it_is_packed_leaves_no_file(tmp_path):
    zip_path, release, is_packed = tmp_path / "packed.zip", threading.Event(), threading.Event()

    def pack():
        release.wait(20)
        zip_path.write_bytes(b"zip")
        is_packed.set()
        return zip_path

    async def scene():
        slots = TransferSlots(1, 0.05, "busy")
        response = TemporaryZipResponse(slots, "a", lambda: asyncio.to_thread(pack), "x.zip")
        await response({"type": "http"}, None, None)
        async with slots.hold("b"):  # the slot is free
            release.set()
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        await asyncio.to_thread(is_packed.wait, 20)

    in_line(scene())
    assert is_packed.is_set()
    assert not zip_path.exists()


def test_a_download_is_not_slow_while_it_is_packed():
    async def scene():
        slots = TransferSlots(1, 20, "busy")

        async def pack():
            with pytest.raises(UserError, match="busy"):
                await slots.hold("b").__aenter__()
            raise FileNotFoundError("deleted")

        sent = []

        async def send(message):
            sent.append(message)

        started = time.monotonic
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: started() + 10 * len(slots._transfers))
            response = TemporaryZipResponse(slots, "a", pack, "x.zip")
            await response({"type": "http"}, None, send)
        return sent[0]["status"]

    assert in_line(scene()) == 404


def test_slots_are_capped_per_address_and_fast_transfers_continue():
    async def scene():
        slots = held(4)
        async with slots.hold("a") as first, slots.hold("a") as second:
            for transfer in (first, second):
                transfer.add_bytes(10**9)
                transfer.started_at -= 10
            with pytest.raises(UserError, match="busy"):
                await slots.hold("a").__aenter__()
            async with slots.hold("b"):
                return first.reason + second.reason

    assert in_line(scene()) == ""


@pytest.mark.parametrize("same_address", [True, False])
def test_the_slowest_transfer_gives_way_to_another(same_address):
    async def scene():
        slots, ended = held(2), []

        async def dribble(address, size):
            try:
                async with slots.hold(address) as transfer:
                    transfer.started_at -= 10
                    transfer.add_bytes(size)
                    await asyncio.Event().wait()
            except TimeoutError:
                ended.append((address, transfer.reason))

        slow = [asyncio.create_task(dribble("a", 50)), asyncio.create_task(dribble("b", 10))]
        await asyncio.sleep(0)
        async with slots.hold("a" if same_address else "c"):
            await asyncio.sleep(0.01)
            left = [task for task in slow if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return ended

    ((address, reason),) = in_line(scene())
    assert address == ("a" if same_address else "b")
    assert "too slow" in reason


def test_a_transfer_whose_bytes_have_arrived_keeps_its_slot():
    async def scene():
        slots = held(1, seconds=0.01)
        async with slots.hold("a") as transfer:
            transfer.started_at -= 10
            transfer.complete()
            await asyncio.sleep(0.05)  # past the deadline that it had
            with pytest.raises(UserError):
                await slots.hold("b").__aenter__()

    in_line(scene())


def test_two_uploads_that_dribble_do_not_keep_others_from_uploading(tmp_path, monkeypatch):
    monkeypatch.setattr("playground.server.transfer_slots.GRACE_PERIOD_S", 0.05)
    registry = Registry(tmp_path)

    async def scene():
        served = served_by(registry)
        slow = [
            asyncio.create_task(
                response(served, "POST", CHECKPOINT_PATH, trickle, address=f"10.0.0.{n}")
            )
            for n in (1, 2)
        ]
        await asyncio.sleep(0.2)
        other = await response(served, "POST", CHECKPOINT_PATH, whole, address="10.0.0.3")
        done, left = await asyncio.wait(slow, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return other, [task.result() for task in done]

    other, ended = in_line(scene())
    registry.shutdown()
    assert (other[0], json.loads(other[1])["error"]) == (
        400,
        "it is not a zip file; upload one that Download created",
    )
    assert [(status, "too slow" in json.loads(text)["error"]) for status, text in ended] == [
        (408, True)
    ]


def test_a_zip_with_its_directory_out_of_range_is_rejected(tmp_path, files):
    registry = Registry(tmp_path)
    packed = bytearray(zipped(files))
    packed[-6:-2] = (len(packed) + 10_000).to_bytes(4, "little")

    async def all_of_it():
        return await whole(bytes(packed))

    status, text = in_line(
        response(
            served_by(registry),
            "POST",
            CHECKPOINT_PATH,
            all_of_it,
        )
    )
    registry.shutdown()
    assert (status, json.loads(text)["error"]) == (
        400,
        "it is not a zip file; upload one that Download created",
    )
