"""What only the fake Hub can show: it is as strict as the real one, and its faults are faults.

The tests of the client (test_client.py) show that the real client works with it.
"""

import os
import subprocess
import sys

import pytest
from huggingface_hub import HfApi
from huggingface_hub.utils import httpx

WEIGHTS = os.urandom(3_000)


@pytest.fixture
def ada(hub):
    hub.put("ada/digits", {"model.safetensors": WEIGHTS})
    return HfApi(endpoint=hub.url, token=hub.ADA)


def test_storage_rejects_a_token_and_an_unsigned_address(hub, ada):
    with httpx.Client() as client:
        response = client.get(f"{hub.url}/ada/digits/resolve/main/model.safetensors")
        assert response.status_code == 302
        signed = response.headers["location"]
        assert client.get(signed).content == WEIGHTS
        assert client.get(signed, headers={"Authorization": f"Bearer {hub.ADA}"}).status_code == 400
        assert client.get(signed.split("?")[0]).status_code == 403
        assert client.put(signed, content=b"other").status_code == 403
        assert client.get(signed, headers={"Range": "bytes=10-19"}).content == WEIGHTS[10:20]
        assert client.get(signed, headers={"Range": "bytes=-7"}).content == WEIGHTS[-7:]
        # the storage host has no API
        assert client.get(f"{hub.storage_url}/api/models").status_code == 403


def test_a_token_of_the_environment_is_used_when_needed(hub, ada, tmp_path):
    """Otherwise the test that this token is never sent proves nothing."""
    code = "from huggingface_hub import HfApi; print(HfApi().model_info('ada/digits').id)"
    with hub.record_requests() as requests:
        environment = hub.environment(tmp_path, token=hub.OWNER, HF_HUB_DISABLE_IMPLICIT_TOKEN="0")
        command = [sys.executable, "-c", code]
        subprocess.run(command, env=os.environ | environment, check=True, timeout=60)
    assert {request.token for request in requests} == {hub.OWNER}
    assert hub.requests_with(hub.OWNER)
