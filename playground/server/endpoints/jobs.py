"""The endpoints for comparisons and for publishing, which are jobs."""

# no `from __future__ import annotations`: Gradio reads the types of the endpoints
import asyncio
import time
from typing import Any

import gradio as gr
from starlette.requests import Request

from playground.errors import UserError
from playground.jobs.admission import Client, limit
from playground.pretrained.benchmark.export import latest_rows
from playground.runs.access import Right
from playground.runs.owner_keys import new_owner_key

from ..client import resolve_client_address
from ..hub_token import is_space
from ..schemas.base import Name, Token
from ..schemas.public_api import BenchmarkSize, JobId, Owner, Seconds, Shots
from .base import EndpointBase, endpoint

POLL_INTERVAL_S = 0.25


class JobEndpoints(EndpointBase):
    """Start, poll and cancel jobs."""

    @endpoint("heavy", needs=Right.REUSE)
    async def compare(
        self,
        model: Name,
        models: list[Name] | None = None,
        n: BenchmarkSize = 20,
        shots: Shots = 8,
        wait: Seconds = 60,
        owner: Owner = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Benchmark a model, baselines and Hub models on the same held-out sequences.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            models: up to 6 models on the Hub, such as ["gpt2"]; without it, baselines only.
            n: number of sequences, from 1 to 500; at most 40 on a shared instance.
            shots: few-shot examples in a prompt, from 0 to 32.
            wait: seconds to wait for the end, up to 240; then use the job endpoint.
            owner: the key that start returned; without it, a new key for the job.

        Returns:
            job and owner (for the job endpoint), status, rows (exact_match with interval), result.
        """
        ref = self.model_ref(model, owner)
        key = ref.owner or new_owner_key()
        payload = ref.model_dump() | {
            "owner": key,
            "kind": "benchmark",
            "request": {"models": models or [], "n": n, "shots": shots},
        }
        response = await self.call_handler("jobs/submit", payload, request)
        return await self._wait_for_job(response["job"], key, wait, request)

    @endpoint("heavy", needs=Right.OWN)
    async def push(
        self,
        model: Name,
        repo: Name,
        token: Token = "",
        private: bool = False,
        branch: Name = "main",
        wait: Seconds = 60,
        owner: Owner = "",
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Publish a run's newest checkpoint, or a checkpoint, on the Hugging Face Hub.

        Args:
            model: a run's id, or checkpoint:NAME.
            repo: the repository on the Hub, user/name; created if it does not exist.
            token: a write token, not stored; locally the default is the token of hf auth login.
            private: whether a new repository is private.
            branch: the branch that gets the commit.
            wait: seconds to wait for the end, up to 240; then use the job endpoint.
            owner: the key that start returned; without it, a new key for the job.

        Returns:
            job and owner (for the job endpoint), status, result (the address of the model).
        """
        ref = self.model_ref(model, owner)
        if is_space() and not request.scope.get("session", {}).get("oauth_info"):
            raise UserError(
                "publishing from a Space needs a sign-in on the Hub tab of the page; "
                "or download the checkpoint and push it from your machine"
            )
        key = ref.owner or new_owner_key()
        payload = ref.model_dump() | {
            "owner": key,
            "kind": "push",
            "request": {"repo": repo, "token": token, "private": private, "revision": branch},
        }
        response = await self.call_handler("jobs/submit", payload, request)
        return await self._wait_for_job(response["job"], key, wait, request)

    @endpoint()
    async def job(
        self, job: JobId, owner: Owner, wait: Seconds = 0, request: gr.Request = None
    ) -> dict[str, Any]:
        """Return the status of a comparison or a push. Results are stored for 15 minutes.

        Args:
            job: the job that compare or push returned.
            owner: the owner that it returned.
            wait: seconds to wait for the end, up to 240.

        Returns:
            the same as compare or push.
        """
        return await self._wait_for_job(job, self.owner_key(owner), wait, request)

    @endpoint()
    async def cancel(self, job: JobId, owner: Owner, request: gr.Request = None) -> dict[str, Any]:
        """Cancel a comparison or a push.

        A comparison keeps its rows; the last message of a push reports a possible partial upload.

        Args:
            job: the job that compare or push returned.
            owner: the owner that it returned.

        Returns:
            the same as compare or push.
        """
        key = self.owner_key(owner)
        await self.call_handler("jobs/cancel", {"job": job, "owner": key}, request)
        return await self._wait_for_job(job, key, 0.0, request)

    # Helpers

    async def _wait_for_job(
        self, job: str, owner: str, seconds: float, request: Request
    ) -> dict[str, Any]:
        """Return the status of a job when it ends, or after `seconds`."""
        client = Client(resolve_client_address(request))
        may_wait = not limit("waiting-calls").exceeded(client, self.waiting_calls)
        deadline = time.monotonic() + seconds * may_wait
        self.waiting_calls.append(client)
        try:
            while True:
                payload = {"job": job, "owner": owner}
                response = await self.call_handler("jobs/poll", payload, request)
                if response["status"] not in ("waiting", "working") or time.monotonic() >= deadline:
                    break
                await asyncio.sleep(POLL_INTERVAL_S)
        finally:
            self.waiting_calls.remove(client)
        result = {
            "job": job,
            "owner": owner,
            "status": response["status"],
            "message": response["message"],
            "retryable": response["retryable"],
        }
        if response["kind"] == "benchmark":
            result |= {
                "done": response["done"],
                "total": response["total"],
                "rows": latest_rows(response["rows"]),
            }
        return result | {"result": _rename_path_keys(response["result"])}


def _rename_path_keys(value: Any) -> Any:
    """Rename the key `path` to `file` in a result.

    gradio_client downloads every dictionary with a `path`.
    """
    if isinstance(value, dict):
        return {
            "file" if key == "path" else key: _rename_path_keys(item) for key, item in value.items()
        }
    return [_rename_path_keys(each) for each in value] if isinstance(value, list | tuple) else value
