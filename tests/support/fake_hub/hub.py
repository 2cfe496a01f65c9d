"""What tests use of the fake Hub: its content, its faults, and the received requests."""

from __future__ import annotations

import contextlib
import re
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import buckets, jobs, reading, writing
from .faults import Fault
from .server import Server
from .storage import handle_storage
from .store import Account, Blob, Repo, is_lfs_file
from .wire import INVALID_TOKEN_MESSAGE, HubError, Request, Response, error_response

# the id of a repository has one or two parts
_API = r"/api/(models|datasets|spaces)/([^/]+(?:/[^/]+)?)"
_PAGE = r"/(datasets/|spaces/)?([^/]+(?:/[^/]+)?)"
_BUCKET = r"/api/buckets/([^/]+/[^/]+)"
_JOBS = r"/api/jobs/([^/]+)"
ROUTES: tuple[tuple[str, str, Callable[..., Response]], ...] = (
    ("GET", "/api/whoami-v2", reading.whoami),
    ("POST", "/api/repos/create", writing.create),
    ("POST", "/api/validate-yaml", writing.validate_yaml),
    ("GET", "/api/(models|datasets|spaces)", reading.listing),
    ("GET", _API + "/tree/([^/]+)(/.*)?", reading.tree),
    ("POST", _API + "/paths-info/([^/]+)", reading.paths_info),
    ("POST", _API + "/preupload/([^/]+)", writing.preupload),
    ("POST", _API + "/commit/([^/]+)", writing.commit),
    ("POST", _PAGE + r"\.git/info/lfs/objects/batch", writing.batch),
    ("GET HEAD", _PAGE + "/resolve/([^/]+)/(.+)", reading.resolve),
    ("GET", _API + "(?:/revision/([^/]+))?", reading.info),
    ("POST", _BUCKET, buckets.create_bucket),
    ("GET", _BUCKET + "/xet-(?:read|write)-token", buckets.xet_token),
    ("POST", _BUCKET + "/batch", buckets.batch_bucket),
    ("GET", _BUCKET + "/tree(/.*)?", buckets.bucket_tree),
    ("GET HEAD", r"/buckets/([^/]+/[^/]+)/resolve/(.+)", buckets.resolve_bucket),
    ("GET", "/api/jobs/hardware", jobs.hardware),
    ("POST", _JOBS, jobs.start_job),
    ("GET", _JOBS, jobs.list_jobs),
    ("GET", _JOBS + "/([^/]+)", jobs.inspect_job),
    ("POST", _JOBS + "/([^/]+)/cancel", jobs.cancel_job),
    ("GET", _JOBS + "/([^/]+)/logs", jobs.job_logs),
)


class FakeHub:
    """The Hub, with four users.

    Ada and Ben are members of the organization `attention`, where Ben has read access only. Cy is
    not a member. No test may send the token of the owner.
    """

    ADA = "hf_StandInTokenOfAdaWhoWrites"
    ADA_READS = "hf_StandInTokenOfAdaWhoReads"
    BEN = "hf_StandInTokenOfBenWhoWrites"
    CY = "hf_StandInTokenOfCyTheOutsider"
    EXPIRED = "hf_StandInTokenOfAdaLongExpired"
    # the HF_TOKEN of a Space: no request of a user may contain it
    OWNER = "hf_StandInTokenOfTheOwnerCanary"
    UNKNOWN = "hf_StandInTokenThatNobodyHas"

    # Patterns of paths for `fault`.
    WHOAMI = r"^/api/whoami-v2$"
    CREATE = r"^/api/repos/create$"
    PREUPLOAD = r"/preupload/"
    BATCH = r"/info/lfs/objects/batch$"
    UPLOAD = r"^/storage/"  # with method="PUT"
    COMMIT = r"^/api/.+/commit/"
    LIST = r"^/api/(models|datasets|spaces)$"
    INFO = r"^/api/(models|datasets|spaces)/[^/]+/[^/]+(/revision/.+)?$"
    RESOLVE = r"/resolve/"
    STORAGE = r"^/storage/"  # with method="GET"
    ANY_PATH = r""

    def __init__(self) -> None:
        self.tokens = {
            self.ADA: Account("ada", {"attention": "admin"}),
            self.ADA_READS: Account("ada", {"attention": "admin"}, role="read"),
            self.EXPIRED: Account("ada", is_expired=True),
            self.BEN: Account("ben", {"attention": "read"}),
            self.CY: Account("cy"),
            self.OWNER: Account("owner"),
        }
        self.repos: dict[tuple[str, str], Repo] = {}
        self.buckets: dict[str, buckets.Bucket] = {}
        self.jobs: dict[str, jobs.HubJob] = {}
        self.job_threads: list[threading.Thread] = []
        self.run_job = jobs.run_in_process  # returns the exit code; tests may replace it
        self.unstarted_shards: set[str] = set()  # the jobs of these shards wait for a machine
        self._folder = tempfile.TemporaryDirectory(prefix="fake-hub-")
        self.folder = Path(self._folder.name)  # of the buckets
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.secret = secrets.token_bytes(16)
        self.lock = threading.RLock()
        self.server = Server(self)
        self.port: int = self.server.server_address[1]
        self.host, self.storage_host = f"127.0.0.1:{self.port}", f"localhost:{self.port}"
        self.url, self.storage_url = f"http://{self.host}", f"http://{self.storage_host}"
        self.thread = threading.Thread(
            target=self.server.serve_forever, args=(0.02,), name="fake-hub", daemon=True
        )
        self.thread.start()

    def __enter__(self) -> FakeHub:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every connection, including those that a fault blocks, and refuse new ones."""
        self.clear_faults()
        self.end_jobs()
        for thread in self.job_threads:
            thread.join(30)  # each reads the log of its job in the folder that ends below
        self.server.shutdown()
        self.server.server_close()
        self.server.close_connections()
        self.thread.join()
        self._folder.cleanup()

    # Content

    def put(
        self,
        id: str,
        files: dict[str, bytes | str | None],
        kind: str = "model",
        revision: str = "main",
        message: str = "Upload",
        **settings: object,
    ) -> str:
        """Commit files without a client; create the repository if missing; return the commit id.

        A content of None deletes a file. `settings` are attributes of the repository: private,
        gated ("auto" or "manual"), likes.
        """
        author = id.split("/")[0]
        with self.lock:
            repo = self.repos.setdefault((kind, id), Repo(kind, id, author))
            vars(repo).update(settings)
            tree = dict((repo.find_commit(revision) or repo.head).files)
            for path, content in files.items():
                tree.pop(path, None)
                if content is not None:
                    data = content.encode() if isinstance(content, str) else content
                    tree[path] = blob = Blob(data, is_lfs_file(path, len(data)))
                    repo.objects |= {blob.sha256: data} if blob.lfs else {}
            return repo.commit(revision, tree, message, author).oid

    def repo(self, id: str, kind: str = "model") -> Repo:
        """Return a repository, with `.head.files`, `.branches`, `.likes`, ...."""
        return self.repos[kind, id]

    def files(self, id: str, revision: str = "main", kind: str = "model") -> dict[str, bytes]:
        """Return the files of a revision, without the .gitattributes of the Hub."""
        commit = self.repos[kind, id].find_commit(revision)
        if commit is None:
            raise KeyError(f"{id} has no revision {revision}")
        return {path: blob.data for path, blob in commit.files.items() if path != ".gitattributes"}

    def commit_titles(self, id: str) -> list[str]:
        """Return the titles of the commits of a model, oldest first; the first is the Hub's own."""
        return [commit.title for commit in self.repo(id).commits.values()]

    def clear(self) -> None:
        """Delete all repositories, jobs, requests and faults."""
        self.clear_faults()
        self.end_jobs()
        with self.lock:
            self.repos.clear()
            self.requests.clear()

    def end_jobs(self) -> None:
        """End and delete all jobs, and the buckets; later jobs run again as processes."""
        with self.lock:
            for job in self.jobs.values():
                job.end("DELETED")
            self.jobs.clear()
            self.buckets.clear()
        self.unstarted_shards.clear()
        self.run_job = jobs.run_in_process

    # Faults

    def fault(self, pattern: str, kind: int | str, **options: Any) -> Fault:
        """Add a fault of the next `times` requests whose path contains `pattern` (None: of all).

        `kind` is one of:
        - an HTTP status: the error response has `message`. A 429 has
          `Retry-After: 86400` unless `retry_after` is set (0: no header). With `page`, the body is
          the HTML page of a gateway.
        - "reset": reset the connection before reading the request.
        - "silent": read the request, and send no response.
        - "lost": process the request, and reset the connection instead of a response.
        - "hang": process the request, and stop in the middle of the response.
        - "cut": process the request, and close the connection in the middle of the response.

        The newest matching fault applies. `.hits` counts its requests. It ends with its `with`
        block, or with `clear_faults()`.
        """
        fault = Fault(re.compile(pattern), kind, **options)
        with self.lock:
            self.faults.append(fault)
        return fault

    def next_fault(self, request: Request) -> Fault | None:
        """Return the fault that applies to a request, and count it."""
        with self.lock:
            for fault in reversed(self.faults):
                if fault.matches(request):
                    fault.hits += 1
                    return fault
        return None

    def clear_faults(self) -> None:
        """End all faults, and close the connections that they block."""
        with self.lock:
            for fault in self.faults:
                fault.ended.set()
            self.faults.clear()

    # Requests

    def account(self, request: Request) -> Account | None:
        """Return the account of a request, None without a token; reject an invalid one."""
        if not request.authorization:
            return None
        account = self.tokens.get(request.token)
        if account is None:
            raise HubError(401, INVALID_TOKEN_MESSAGE)
        if account.is_expired:
            raise HubError(401, 'User Access Token "laptop" is expired')
        return account

    def handle(self, request: Request) -> Response:
        """Process a request."""
        try:
            if request.host == self.storage_host:
                return handle_storage(self, request)
            for methods, pattern, handler in ROUTES:
                match = re.fullmatch(pattern, request.path)
                if match and request.method in methods.split() and request.host == self.host:
                    with self.lock:
                        return handler(self, request, *match.groups())
            raise HubError(404, "Sorry, we can't find the page you are looking for.")
        except HubError as error:
            return error_response(request, error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return error_response(request, HubError(400, f"Malformed request: {error!r}"))

    @contextlib.contextmanager
    def record_requests(self) -> Iterator[list[Request]]:
        """Yield a list, filled with the requests of the block when it ends."""
        recorded: list[Request] = []
        with self.lock:
            first = len(self.requests)
        try:
            yield recorded
        finally:
            with self.lock:
                recorded.extend(self.requests[first:])

    def requests_with(self, secret: str) -> list[Request]:
        """Return every request that contains a text in its address, headers or body."""
        with self.lock:
            return [request for request in self.requests if secret in request]

    def environment(self, home: Path, token: str = "", **variables: str) -> dict[str, str]:
        """Return the variables of a process that uses this Hub, beside those of `os.environ`."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_TOKEN": token,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        } | variables
