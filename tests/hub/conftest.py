"""A Hub of this machine for every test module here."""

import pytest

from tests.support.fake_hub import StandInHub


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A stand-in Hub. Nothing in this process or in one started from it finds any other, nor this machine's own token.

    huggingface_hub reads the environment once, when it is imported, perhaps long before this: what it has read is
    changed too. Still give `endpoint=` where a function takes one.
    """
    from huggingface_hub import constants, hf_api
    from huggingface_hub.utils import close_session

    home = tmp_path_factory.mktemp("hf-home")
    with StandInHub() as hub, pytest.MonkeyPatch.context() as patch:
        for name, value in hub.environment(home).items():
            patch.setenv(name, value)
        for name, value in {
            "ENDPOINT": hub.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_DISABLE_TELEMETRY": True,
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": True,
            "HF_HUB_DISABLE_PROGRESS_BARS": True,
        }.items():
            patch.setattr(constants, name, value)
        patch.setattr(hf_api.api, "endpoint", hub.url)  # behind the functions of the package
        yield hub
        close_session()


@pytest.fixture(autouse=True)
def healed(request):
    """No fault outlives its test."""
    yield
    if "hub" in request.fixturenames:
        request.getfixturevalue("hub").heal()
