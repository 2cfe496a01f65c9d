"""A fake Hugging Face Hub for tests: the HTTP API of huggingface_hub 2.4, with faults.

    with FakeHub() as hub:
        api = HfApi(endpoint=hub.url, token=hub.ADA)
        hub.put("ben/counting", {"README.md": b"...", "model.safetensors": weights})
        with hub.fault(hub.COMMIT, 503, times=1): ...  # the next commit fails
        with hub.record_requests() as requests: ...
        assert not hub.requests_with(hub.OWNER)  # this token was never sent

`store` has the repositories and users, `faults` the faults, `reading`, `writing`, `storage`,
`buckets` and `jobs` the endpoints, `wire` the requests and responses, `server` the connections,
`hub` what tests use.
"""

from .hub import FakeHub

__all__ = ["FakeHub"]
