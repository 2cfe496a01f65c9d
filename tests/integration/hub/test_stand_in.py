"""What only the fake Hub can show: it is as strict as the real one, and its faults are faults.

The tests of the client (test_client.py) show that the real client works with it.
"""

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from huggingface_hub import (
    CommitOperationAdd,
    HfApi,
    ModelCard,
    ModelCardData,
)
from huggingface_hub.errors import (
    HfHubHTTPError,
)
from huggingface_hub.utils import httpx

TAG = "transformer-playground"
CARD = ModelCardData(
    library_name="transformers", pipeline_tag="translation", tags=[TAG, "reverse"], license="mit"
)
README = str(ModelCard(f"---\n{CARD.to_yaml()}\n---\n# A model that turns digits round\n")).encode()
WEIGHTS = os.urandom(3_000)


@pytest.fixture(scope="module")
def ada(hub):
    return HfApi(endpoint=hub.url, token=hub.ADA)


def add(path, content):
    return CommitOperationAdd(path_in_repo=path, path_or_fileobj=content)


def get_error_status(call, *arguments, **options):
    with pytest.raises(HfHubHTTPError) as error:
        call(*arguments, **options)
    return error.value.response.status_code


def create_safetensors(**shapes):
    """Return a handmade safetensors file."""
    header, data = {}, b""
    for name, numbers in shapes.items():
        header[name] = {
            "dtype": "F32",
            "shape": [numbers],
            "data_offsets": [len(data), len(data) + 4 * numbers],
        }
        data += bytes(4 * numbers)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_storage_rejects_a_token_and_an_unsigned_address(hub):
    hub.put("ada/reverse", {"model.safetensors": WEIGHTS})
    with httpx.Client() as client:
        actual = client.get(f"{hub.url}/ada/reverse/resolve/main/model.safetensors")
        assert actual.status_code == 302
        signed = actual.headers["location"]
        assert client.get(signed).content == WEIGHTS
        assert client.get(signed, headers={"Authorization": f"Bearer {hub.ADA}"}).status_code == 400
        assert client.get(signed.split("?")[0]).status_code == 403
        assert client.put(signed, content=b"other").status_code == 403
        assert client.get(signed, headers={"Range": "bytes=10-19"}).content == WEIGHTS[10:20]
        assert client.get(signed, headers={"Range": "bytes=-7"}).content == WEIGHTS[-7:]
        assert (
            client.get(f"{hub.storage_url}/api/models").status_code == 403
        )  # the storage host has no API


def test_a_large_file_that_was_never_sent_cannot_be_committed(hub, ada):
    hub.put("ada/pointer", {})
    body = "".join(
        json.dumps(item) + "\n"
        for item in (
            {"key": "header", "value": {"summary": "Message", "description": ""}},
            {
                "key": "lfsFile",
                "value": {"path": "a.safetensors", "algo": "sha256", "oid": "0" * 64, "size": 3},
            },
        )
    )
    response = httpx.post(
        f"{hub.url}/api/models/ada/pointer/commit/main",
        content=body,
        headers={"Authorization": f"Bearer {hub.ADA}"},
    )
    assert response.status_code == 400
    assert "does not exist" in response.json()["error"]


@pytest.mark.smoke
def test_a_card_is_read_and_a_broken_one_rejected(hub, ada):
    hub.put("ada/card", {})
    with pytest.raises(ValueError, match="Invalid metadata"):
        ada.create_commit(
            "ada/card",
            [add("README.md", b"---\ntags: {a: 1}\n---\n")],
            commit_message="Invalid tags",
        )
    with pytest.raises(ValueError, match="YAML"):
        ada.create_commit(
            "ada/card", [add("README.md", b"---\na: [\n---\n")], commit_message="No YAML"
        )
    with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
        ada.create_commit("ada/card", [add("README.md", b"# No card\n")], commit_message="No card")
    ada.create_commit(
        "ada/card",
        [add("README.md", README), add("model.safetensors", create_safetensors(a=6, b=4))],
        commit_message="Card",
    )
    info = ada.model_info("ada/card")
    assert (info.pipeline_tag, info.library_name, info.card_data.license) == (
        "translation",
        "transformers",
        "mit",
    )
    assert {
        TAG,
        "reverse",
        "transformers",
        "safetensors",
        "translation",
        "license:mit",
        "region:us",
    } == set(info.tags)
    assert (info.safetensors.total, info.safetensors.parameters) == (10, {"F32": 10})
    assert info.card_data.tags == [TAG, "reverse"]


def test_a_token_of_the_environment_is_used_when_needed(hub, tmp_path):
    """Otherwise the test that this token is never sent proves nothing."""
    hub.put("ada/canary", {"config.json": "{}"})
    code = "from huggingface_hub import HfApi; print(HfApi().model_info('ada/canary').id)"
    for disabled, expected_tokens in (("1", {""}), ("0", {hub.OWNER})):
        with hub.record_requests() as requests:
            environment = hub.environment(
                tmp_path, token=hub.OWNER, HF_HUB_DISABLE_IMPLICIT_TOKEN=disabled
            )
            completed = subprocess.run(
                [sys.executable, "-c", code],
                env=os.environ | environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
        assert completed.stdout.strip() == "ada/canary", completed.stderr
        assert {request.token for request in requests} == expected_tokens
    assert hub.requests_with(hub.OWNER)


def test_fault_counts_its_hits_and_ends(hub, ada):
    hub.put("ada/counted", {})
    fault = hub.fault(hub.INFO, 503, times=2)
    assert [get_error_status(ada.model_info, "ada/counted") for _ in range(2)] == [503, 503]
    assert ada.model_info("ada/counted").id == "ada/counted"
    assert fault.hits == 2
    hub.fault(hub.INFO, 500)
    hub.fault(hub.INFO, 403, times=1)
    assert get_error_status(ada.model_info, "ada/counted") == 403
    assert get_error_status(ada.model_info, "ada/counted") == 500
    hub.clear_faults()
    assert ada.model_info("ada/counted").id == "ada/counted"
    with pytest.raises(ValueError, match="a fault is"):
        hub.fault(hub.INFO, "explode")


@pytest.mark.parametrize("kind", ["silent", "hang"])
def test_silent_fault_lasts_until_a_timeout_or_until_it_is_cleared(hub, ada, kind):
    hub.put("ada/silent", {"README.md": README})
    with hub.fault(hub.INFO, kind), pytest.raises(httpx.TimeoutException):
        ada.model_info("ada/silent", timeout=0.2)
    fault, errors = hub.fault(hub.INFO, kind), []

    def send_request():
        try:
            ada.model_info("ada/silent")
        except httpx.HTTPError as error:
            errors.append(error)

    thread = threading.Thread(target=send_request)
    thread.start()
    while not fault.hits:
        time.sleep(0.01)
    assert thread.is_alive()
    hub.clear_faults()
    thread.join(60)
    assert len(errors) == 1
    assert ada.model_info("ada/silent").id == "ada/silent"
