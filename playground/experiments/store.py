"""Store the experiments of a server, in memory and as files.

<folder>/<id>.json   the specification and the ids of its runs
<folder>/<id>.jsonl  the results of the runs that have ended, one in each line
<folder>/<id>/       the folder of its shards, if they train elsewhere
"""

import secrets
import shutil
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from playground.common.atomic_write import clean_up_stale, storing, write_file
from playground.common.strict_json import read_json
from playground.common.validation import parse
from playground.errors import UserError
from playground.jobs.admission import Client, limit
from playground.models.config_fields import short_repr
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.runs.storage_folder import Damaged, describe_damage

from .shards import ShardedExperiment, ShardJobs
from .spec import Experiment, StoredExperiment
from .state import ExperimentState, ResultCache
from .summary import append_lines

MAX_CACHED = 64  # experiments with computed results in memory
EXPERIMENT_MISSING = "this experiment is no longer here, or not yours; select another one"


class ExperimentStore:
    """The experiments of a server. Public methods are safe to call from any thread."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.folder = registry.root / "experiments"
        self.lock = threading.RLock()
        self.states: dict[str, ExperimentState] = {}
        self.damaged: dict[str, Damaged] = {}  # the files that cannot be read, by name
        # Experiments with computed results, by id, most recently used last.
        self._cached: OrderedDict[str, ExperimentState] = OrderedDict()
        self._cache_lock = threading.Lock()
        clean_up_stale(self.folder)  # the lock of the storage keeps other writers away
        for path in self.folder.glob("*"):
            if not path.with_suffix(".json").exists():  # a damaged record that was removed
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        for path in sorted(self.folder.glob("*.json")):
            try:
                state = _read(path)
            except (ValueError, OSError) as error:  # it may belong to another version
                self.damaged[path.name] = describe_damage(path, path, error)
                continue
            self.states[state.experiment.id] = state

    def find(self, experiment_id: object, owner: str) -> Experiment | None:
        """Return the experiment of the owner with this id, or None."""
        state = self.states.get(experiment_id) if isinstance(experiment_id, str) else None
        return state.experiment if state and _is_owner(state.experiment, owner) else None

    def list_for_owner(self, owner: str) -> list[Experiment]:
        """Return the experiments of an owner, newest first."""
        experiments = [state.experiment for state in self.listed()]
        owned = [each for each in experiments if _is_owner(each, owner)]
        return sorted(owned, key=lambda each: -each.created)

    def state(self, experiment: Experiment) -> ExperimentState:
        """Return the state of an experiment. Raises UserError when it was deleted meanwhile."""
        state = self.states.get(experiment.id)
        if state is None:
            raise UserError(EXPERIMENT_MISSING)
        return state

    def listed(self) -> list[ExperimentState]:
        """Return all experiments but those of lessons."""
        return [state for state in self.states.copy().values() if state.is_listed]

    def add(
        self, experiment: Experiment, owner: str, jobs: ShardJobs | None = None
    ) -> ExperimentState:
        """Store a new experiment; the scheduler starts its runs, or `jobs` train its shards.

        Raises UserError at a limit, or when it cannot be trained or stored.
        """
        with self.lock:
            if self.registry.settings.has_count_limits:
                self._ensure_below_limits(experiment, owner, is_elsewhere=jobs is not None)
            address_id = self.registry.client_address()
            state = ExperimentState(experiment, self.folder, address_id=address_id)
            if jobs:
                state.shards = ShardedExperiment.create(state.shards_folder, experiment, jobs)
            self.write(state)
            state.owner = owner
            self.states[experiment.id] = state
        return state

    def _ensure_below_limits(self, experiment: Experiment, owner: str, is_elsewhere: bool) -> None:
        """Admit one more experiment, or raise UserError; the oldest of an inactive owner makes way.

        When the address of the client has its share, that is one of the same address.
        """
        client = Client(self.registry.client_address(), experiment.owner)
        max_runs = limit("runs").per_owner
        n_runs = sum(not run.is_deleted for run in self.registry.list_for_owner(owner))
        if is_elsewhere:
            elsewhere = [each for each in self.listed() if each.shards]
            clients = [Client(each.address_id, each.experiment.owner) for each in elsewhere]
            limit("experiments-elsewhere").admit(client, clients)
        elif max_runs is not None and n_runs + experiment.n_runs > max_runs:
            raise UserError(
                f"you have {n_runs} runs and this experiment would add {experiment.n_runs}; "
                f"the maximum is {max_runs}, delete some first"
            )
        present = {
            each: Client(each.address_id, each.experiment.owner)
            for each in sorted(self.listed(), key=lambda each: each.experiment.created)
        }
        inactive = (
            each
            for each in present
            if not each.owner and each.experiment.owner not in self.registry.owner_last_seen
        )

        def remove(state: ExperimentState) -> int:
            with suppress(OSError):
                self._delete_files(state)
            self.forget(state.experiment)
            return 1

        limit("experiments").admit_or_evict(client, present, inactive, remove)

    def remove(self, experiment: Experiment) -> None:
        """Delete an experiment; its runs stay. Raises UserError when the file stays, too."""
        with self.lock:
            try:
                self._delete_files(self.state(experiment))
            except OSError as error:
                raise UserError(
                    f"the experiment could not be deleted: {error.strerror or error}"
                ) from None
            self.forget(experiment)

    def write(self, state: ExperimentState) -> None:
        """Write an experiment and the ids of its runs to disk, or raise UserError."""
        if not state.is_listed:
            return
        stored = StoredExperiment.model_construct(
            **dict(state.experiment),
            runs=state.runs,
            summarized=tuple(state.summarized),
            cancelled=state.is_cancelled,
            address=state.address_id,
        )
        data = stored.model_dump_json(indent=1).encode() + b"\n"
        with storing("the experiment"):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(state.path, data)

    def add_summaries(self, state: ExperimentState, lines: Mapping[str, bytes]) -> None:
        """Store the results of runs. Without space on the disk, they are read from the runs."""
        if not lines:
            return
        state.summaries.update(lines)
        with suppress(OSError, UserError):
            append_lines(state.summaries_path, lines.values())
            state.summarized |= lines.keys()
            self.write(state)

    def touch(self, experiment: Experiment) -> ExperimentState:
        """Return the state of an experiment; the longest unused inactive ones lose their caches."""
        state = self.state(experiment)
        with self._cache_lock:  # the other lock is held while a run starts
            self._cached[experiment.id] = state
            self._cached.move_to_end(experiment.id)
            for each in list(self._cached.values())[:-MAX_CACHED]:
                if not each.owner and each.pending is None:
                    each.cache = ResultCache()
                    del self._cached[each.experiment.id]
        return state

    def forget(self, experiment: Experiment) -> None:
        """Remove an experiment from memory."""
        with self.lock, self._cache_lock:
            self.states.pop(experiment.id, None)
            self._cached.pop(experiment.id, None)

    @staticmethod
    def _delete_files(state: ExperimentState) -> None:
        shutil.rmtree(state.shards_folder, ignore_errors=True)
        state.path.unlink(missing_ok=True)
        state.summaries_path.unlink(missing_ok=True)


def _is_owner(experiment: Experiment, owner: str) -> bool:
    return bool(owner) and secrets.compare_digest(experiment.owner, owner_id(owner))


def _read(path: Path) -> ExperimentState:
    """Read an experiment from a file. Raises ValueError for a file of another version."""
    stored = parse(StoredExperiment, read_json(path))
    if stored.id != path.stem:
        raise ValueError(f"its id is {short_repr(stored.id)}, which is not the name of its file")
    fields = stored.model_dump(exclude={"version", "runs", "summarized", "cancelled", "address"})
    experiment = Experiment.model_construct(**fields)
    state = ExperimentState(experiment, path.parent, stored.runs, stored.summarized, stored.address)
    state.is_cancelled = stored.cancelled
    if state.shards_folder.is_dir():
        state.shards = ShardedExperiment.read(state.shards_folder, stored.owner)
    return state
