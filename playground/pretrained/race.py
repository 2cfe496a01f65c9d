"""A race: models train side by side on one task, from one seed, in turns of equal CPU time.

One process trains all lanes, so neither free slots nor the load of the machine decide. The time of
a lane is that of its updates; the scores between its turns cost none. Each lane has its own state
of the random generator, so it learns what it learns alone.
"""

import time
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, field_validator

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.architectures.seq2seq_model import eval_mode
from playground.checkpoints.manifest import read_manifest
from playground.common import messages
from playground.jobs.progress import ProgressReporter
from playground.tasks.held_out import build_held_out_set
from playground.tasks.task import Batch
from playground.training.matched_size import match_parameter_count
from playground.training.run_config import RunConfig
from playground.training.trainer import FINAL_EVAL_SIZE, Trainer

from .requests import JobRequest, Seed

TARGET_SCORE = 0.99
ONE_HEAD = "one-head"
LANES = {ONE_HEAD: "One head"} | {name: each.title for name, each in ARCHITECTURES.items()}
TURN_S = 0.5  # CPU seconds
LIMIT_S = 60.0  # CPU seconds of a lane
EVAL_SIZE = 256


class RaceRequest(JobRequest):
    """The lanes of a race. The task and the size are those of a checkpoint."""

    checkpoint: str = Field(min_length=1, json_schema_extra={"accepts": "a checkpoint"})
    lanes: Annotated[list[str], Field(min_length=2, max_length=4)]
    seed: Seed = 0

    @field_validator("lanes")
    @classmethod
    def _require_known(cls, lanes: list[str]) -> list[str]:
        for name in lanes:
            if name not in LANES:
                raise ValueError(messages.choose_one_of("lane", repr(name[:40]), LANES))
        return list(dict.fromkeys(lanes))


def lane_config(config: RunConfig, lane: str, seed: int) -> RunConfig:
    """Return the settings of a lane: the task of `config`, and as many parameters."""
    base = config.replace(seed=seed, num_threads=1, stop_at_exact_match=0)
    lane_config = base.replace(n_heads=1) if lane == ONE_HEAD else match_parameter_count(base, lane)
    return lane_config.replace(eval_every=lane_config.training.max_steps)


class Lane:
    """A model in a race."""

    def __init__(self, config: RunConfig) -> None:
        self.trainer = Trainer(config)
        self.random_state = torch.get_rng_state()
        self.seconds = 0.0
        self.has_reached = False

    @property
    def is_racing(self) -> bool:
        can_continue = self.trainer.should_continue() and self.seconds < LIMIT_S
        return can_continue and not self.has_reached

    def train_until(self, seconds: float) -> None:
        """Train until this lane has used so much CPU time."""
        torch.set_rng_state(self.random_state)
        while self.seconds < seconds and self.is_racing:
            started = time.thread_time()
            self.trainer.train_step()
            self.seconds += time.thread_time() - started
        self.random_state = torch.get_rng_state()

    def score(self) -> float:
        """Return the exact match; one that reaches the target is confirmed on more sequences."""
        score = self.trainer.evaluate(EVAL_SIZE).exact_match
        if score >= TARGET_SCORE:
            score = self.trainer.evaluate(FINAL_EVAL_SIZE).exact_match
            self.has_reached = score >= TARGET_SCORE
        return score

    def write(self, example: Batch) -> list[str]:
        """Return the output for an example."""
        model = self.trainer.eval_model
        with torch.no_grad(), eval_mode(model):
            tokens = model.generate(example.source_BS, example.labels_BT.shape[1])[0]
        return self.trainer.task.vocabulary.decode(tokens.tolist())


def race(request: Any, progress: ProgressReporter) -> dict[str, Any]:
    """Train the lanes, report a row for each turn of each lane, and return what they are."""
    fields = RaceRequest.parse(request)
    config = read_manifest(Path(fields.checkpoint)).config
    configs = [lane_config(config, name, fields.seed) for name in fields.lanes]
    Trainer(configs[0]).train_step()  # what torch does once belongs to no lane
    lanes = [Lane(each) for each in configs]
    task, lengths = lanes[0].trainer.task, (config.task.min_length, config.task.max_length)
    batch = build_held_out_set(task, EVAL_SIZE, *lengths).batch
    example = batch.select(torch.tensor([-1]))  # a longest one
    decode = task.vocabulary.decode
    description = {
        "seed": fields.seed,
        "lanes": [
            {"name": name, "title": LANES[name], "parameters": parameter_count(each.model)}
            for name, each in zip(fields.lanes, configs, strict=True)
        ],
        "choices": LANES,
        "source": decode(example.source_BS[0].tolist()),
        "target": decode(example.labels_BT[0].tolist()),
    }
    progress.partial(description)
    turns = 0
    while any(each.is_racing for each in lanes):
        turns += 1
        progress.progress(turns * TURN_S, LIMIT_S, "CPU seconds")
        for number, lane in enumerate(lanes):
            if lane.is_racing:
                lane.train_until(turns * TURN_S)
                progress.row(
                    {
                        "lane": number,
                        "step": lane.trainer.step_count,
                        "seconds": round(lane.seconds, 2),
                        "exact_match": round(lane.score(), 4),
                        "output": lane.write(example),
                        "has_reached": lane.has_reached,
                    }
                )
    return description
