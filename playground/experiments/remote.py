"""Follow the experiments of a server whose shards train elsewhere, each in a thread of its own.

The folder of the shards (shards.py) and the backend know everything, so jobs go on without the
server, which follows them again after a restart. Jobs of the Hub need the token of their user,
which is never stored: these are followed again when their user returns.
"""

import logging
import threading
from typing import TypedDict

from playground.errors import UserError

from .state import ExperimentState
from .store import ExperimentStore

log = logging.getLogger(__name__)

WAITING_FOR_TOKEN = "sign in with Hugging Face again to see the progress; the jobs go on"
LEAVE_TIMEOUT_S = 30  # seconds; a thread may wait for an answer of the backend
ENDING = "the jobs are being ended; their finished runs stay"


class ShardProgress(TypedDict):
    """The finished runs of a shard; `state` is that of its job, empty without one."""

    runs: int
    done: int
    state: str


class Elsewhere(TypedDict):
    """Where an experiment trains; `account` pays for it, and `needs_token` waits for its user."""

    backend: str
    account: str
    needs_token: bool
    shards: list[ShardProgress]


class RemoteRunner:
    """The threads, and the actions of owners, which expect the caller to hold `store.lock`."""

    def __init__(self, store: ExperimentStore) -> None:
        self.store = store
        self._threads: dict[str, threading.Thread] = {}
        self._wake = threading.Event()  # set when an action or a token must not wait
        self._is_closed = False
        for state in store.listed():
            if state.shards and not state.shards.record.cancelled and not state.is_complete:
                self._follow(state, state.experiment.owner)

    def close(self) -> None:
        """Follow no more; the jobs go on."""
        self._is_closed = True
        self._wake.set()

    def start(self, state: ExperimentState, token: str) -> None:
        """Start the jobs of a new experiment."""
        assert state.shards
        state.shards.use_token(token)
        self._follow(state, state.owner)

    def pause(self, state: ExperimentState, owner: str) -> None:
        """End the jobs; each saves its runs first."""
        assert state.shards
        state.shards.record.cancelled = True
        state.shards.write_jobs()
        if not state.is_complete:
            state.message = ENDING
            self._follow(state, owner)

    def cancel(self, state: ExperimentState, owner: str) -> None:
        """End the jobs and the experiment; its finished runs stay."""
        state.is_cancelled = True
        self.store.write(state)
        self.pause(state, owner)

    def leave(self, state: ExperimentState) -> None:
        """Follow an experiment no more. The caller does not hold `store.lock`."""
        thread = self._threads.get(state.experiment.id)
        state.owner = ""
        self._wake.set()
        if thread:
            thread.join(LEAVE_TIMEOUT_S)

    def resume(self, state: ExperimentState, owner: str) -> None:
        """Start jobs for the shards that have none."""
        assert state.shards
        state.shards.allow_jobs()
        state.is_cancelled, state.message = False, ""
        self.store.write(state)
        self._follow(state, owner)

    def use_token(self, owner_id: str, token: str) -> None:
        """Follow the jobs of an owner with a token, which stays in the memory of the server."""
        for state in self.store.listed():
            if state.shards and state.experiment.owner == owner_id:
                state.shards.use_token(token)
        self._wake.set()

    def _follow(self, state: ExperimentState, owner: str) -> None:
        """Follow an experiment until its jobs have ended."""
        state.owner = owner
        thread = threading.Thread(target=self._run, args=(state,), name="shards", daemon=True)
        if state.experiment.id not in self._threads:
            self._threads[state.experiment.id] = thread
            thread.start()
        self._wake.set()

    def _run(self, state: ExperimentState) -> None:
        assert state.shards
        while not self._is_closed:
            try:
                has_ended = not state.owner or self.advance(state)
            except Exception as error:
                has_ended = not getattr(error, "retryable", False)
                if not isinstance(error, UserError):
                    log.exception("The jobs of experiment %s are not followed", state.experiment.id)
                state.message = str(error) if isinstance(error, UserError) else "an internal error"
            if has_ended:
                self._end(state)
                return
            self._wake.wait(state.shards.backend.poll_interval_s)
            self._wake.clear()

    def _end(self, state: ExperimentState) -> None:
        """Follow an experiment no more; without all results it waits for a resume."""
        with self.store.lock:
            del self._threads[state.experiment.id]
            if state.owner and state.shards and not state.is_complete:
                state.shards.record.cancelled = True  # also after a restart
                state.shards.write_jobs()
            state.owner = ""

    def advance(self, state: ExperimentState) -> bool:
        """Start, end and count jobs, and store new results; return whether no job is left."""
        shards = state.shards
        assert shards
        if shards.backend.needs_token and not shards.backend.token:
            state.message = WAITING_FOR_TOKEN
            return False
        states = shards.cancel() if shards.record.cancelled else shards.advance()[1]
        runs, lines = shards.collect(state.summarized)
        with self.store.lock:
            state.runs |= runs
            self.store.add_summaries(state, lines)
            state.job_states = states
            state.message = ENDING if states and shards.record.cancelled else ""
        return not states


def describe_place(state: ExperimentState) -> Elsewhere | None:
    """Return where an experiment trains; None for this server."""
    if state.shards is None:
        return None
    record, backend = state.shards.record, state.shards.backend
    is_done = [key in state.runs for key, *_ in state.experiment.planned_runs()]
    done_by_shard = [is_done[shard :: record.n_shards] for shard in range(record.n_shards)]
    return {
        "backend": record.backend,
        "account": record.account,
        "needs_token": bool(state.owner) and backend.needs_token and not backend.token,
        "shards": [
            {"runs": len(done), "done": sum(done), "state": state.job_states.get(shard, "")}
            for shard, done in enumerate(done_by_shard)
        ],
    }
