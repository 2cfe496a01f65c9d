"""Environment variables that the app changes."""

import os

import pytest

from playground.common.env import exempt_local_hosts_from_proxy

NAMES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def without_proxy(monkeypatch):
    for name in NAMES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
        monkeypatch.setenv(name.upper(), "")
        monkeypatch.delenv(name.upper())


def test_local_hosts_are_added_to_those_that_bypass_a_proxy(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "intranet.example, localhost")
    exempt_local_hosts_from_proxy()
    assert os.environ["NO_PROXY"] == "intranet.example,localhost,127.0.0.1,::1"
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"]


def test_without_a_proxy_in_the_environment_the_one_of_the_system_is_used():
    exempt_local_hosts_from_proxy()
    assert "NO_PROXY" not in os.environ
    assert "no_proxy" not in os.environ
