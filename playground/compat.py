"""Names of earlier versions, accepted for one release.

Every reader of saved files, links, commands and environment variables maps them with these
functions. Nothing writes them. This file and its callers' lines go away together in version 0.3.0.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

SETTINGS = {
    "family": "architecture",
    # task
    "symbols": "n_symbols",
    "rows": "dataset_sha256",
    "vocabulary": "dataset_symbols",
    "longest_answer": "max_target_length",
    # model
    "kv_heads": "n_kv_heads",
    "norm": "norm_placement",
    "norm_kind": "norm_type",
    "positions": "position_type",
    "position_scale": "sinusoidal_scale",
    "position_range": "randomized_range",
    "tie_output": "tie_output_embeddings",
    "source_vocabulary": "source_vocab_size",
    "target_vocabulary": "target_vocab_size",
    "alignment": "attention",
    # training
    "steps": "max_steps",
    "schedule": "lr_schedule",
    "warmup": "warmup_steps",
    "decay_steps": "lr_decay_steps",
    "final_share": "min_lr_ratio",
    "beta1": "adam_beta1",
    "beta2": "adam_beta2",
    "epsilon": "adam_eps",
    "clip": "max_grad_norm",
    "eval_n": "eval_size",
    "until": "stop_at_exact_match",
    "threads": "num_threads",
}
FOREIGN_DEFAULTS = {"n_heads": 1}  # in checkpoints of recurrent models
# keys of responses of the API and of `predict --json`, by their present names
RESPONSE_KEYS = {
    "prediction": "given",
    "target": "answer",
    "correct": "right",
    "message": "sentence",
    "grad_norm": "gradient_norm",
    "evaluations": "scored",
}
# keys of single responses of the API, by their present names
ATTENTION_KEYS = {"prediction": "written", "target": "answer"}
JOB_KEYS = RESPONSE_KEYS | {"retryable": "again"}
STATUS_KEYS = {"queue_position": "place"}
# keys of a row of the benchmark in responses of the API, by their present names
BENCHMARK_KEYS = {
    "index": "place",
    "description": "what",
    "decoding": "way",
    "caveat": "note",
    "finished": "over",
    "n_few_shot": "examples",
    "seconds_per_example": "seconds_an_item",
    "rank_seconds_per_example": "rank_seconds_an_item",
    "n_tokens": "symbols",
}
# keys of requests, and the action of a run, by the names of versions 0.1.0 and 0.2.0
REQUEST_KEYS = {
    "do": "action",
    "what": "request",
    "again": "refresh",
    "stop": "lesson",
    "mistake": "bug",
    "data": "include_dataset",
    "expected": "expected_parent",
    "main": "is_main",
    "minutes": "interval_minutes",
    "families": "architectures",
    "content": "sha256",
}
RUN_ACTIONS = {"again": "rerun", "keep": "save"}
RANDOM_BUG = "mystery"
RUN_FIELDS = {
    "watch_id": "share_id",
    "active": "trained_seconds",
    "removed": "evicted",
    "sent": "imported",
    "origin": "branched_from",
}
EXPERIMENT_RUN_NAME = re.compile(r".+: .+, seed \d+( \(\d+\))?")
METRICS = {"gradient_norm": "grad_norm", "scored": "eval_size"}
VALUES = {
    "preset": {"write-up": "tutorial"},
    "task": {"rows": "dataset"},
    "architecture": {"prebuilt": "torch-transformer"},
    "position_type": {"from-the-end": "learned-from-end", "randomised": "randomized"},
}

# Parts of the names of weights, as patterns of the present names and the old names.
LAYER = re.compile(r"^(optimizer\.\w+\.)?((en|de)coder_)?layers\.\d+\.")
LAYER_WEIGHTS = (
    (r"\b(self|cross)_attn_residual\b", r"around_\1_attention"),
    (r"\bfeed_forward_residual\b", "around_feed_forward"),
    (r"\b(self|cross)_attn\b", r"\1_attention"),
    (r"attention\.q_proj\b", "attention.query"),
    (r"attention\.[kv]_proj\b", "attention.key_value"),
    (r"attention\.out_proj\b", "attention.output"),
    (r"\bposition_encoding\.relative_attention_bias\b", "relation.table"),
    (r"\bup_proj\b", "widen"),
    (r"\bdown_proj\b", "narrow"),
    (r"\bgate_proj\b", "gate"),
)
OTHER_WEIGHTS = (
    (r"embedding\.token_embedding\b", "embedding.tokens"),
    (r"embedding\.position_embedding\b", "embedding.positions"),
    (r"\b(source|target)_token_embedding\b", r"\1_tokens"),
    (r"\b(source|target)_position_embedding\b", r"\1_positions"),
    (r"\boutput_proj\b", "output"),
    (r"\binput_proj\b", "given"),
    (r"\bhidden_proj\b", "kept"),
    (r"\battention\.(query|memory|score)_proj\b", r"attention.\1"),
    (r"\bcontext_proj\b", "combine"),
)

# names of the stages of a trace, in links
STAGES = {
    "symbols": "token embeddings",
    "positions": "position vectors",
    "turned queries": "rotated queries",
    "turned keys": "rotated keys",
    "distance": "position bias",
    "scores and distance": "biased scores",
    "gate": "gate projection",
    "widen": "up projection",
    "narrow": "down projection",
}


JOB_KINDS = {
    "about": "model-info",
    "cached": "cached-models",
    "table": "benchmark",
    "free": "inference",
    "mismatch": "tokenizer-mismatch",
    "banks": "word-in-context",
    "sizes": "model-sizes",
}


# names of views in requests
VIEWS = {
    "away": "ablation",
    "away-answer": "ablated-answer",
    "walk": "trace",
    "walk-cell": "trace-cell",
    "symbols": "embeddings",
}


COMMANDS = {"rows": "dataset"}
DECODING_MODES = {"own": "free-running", "right": "teacher-forced", "drawn": "sampled"}


def upgrade_view_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request of a view with `mode` in place of `way`, and the base model as `paper`."""
    upgraded = _rename_way(request, "mode", DECODING_MODES)
    if upgraded.get("of") == "base":
        upgraded["of"] = "paper"
    return upgraded


def upgrade_inference_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request of text generation with `decoding` in place of `way`."""
    return _rename_way(request, "decoding", {"drawn": "sampling"})


def _rename_way(request: Mapping[str, Any], name: str, values: dict[str, str]) -> dict[str, Any]:
    upgraded = dict(request)
    if "way" in upgraded:
        way = upgraded.pop("way")
        upgraded.setdefault(name, values.get(way, way) if isinstance(way, str) else way)
    return upgraded


def command_name(name: str) -> str:
    """Return the present name of a command."""
    return COMMANDS.get(name, name)


def view_name(name: str) -> str:
    """Return the present name of a view of the Inspect tab."""
    return VIEWS.get(name, name)


def job_kind(name: str) -> str:
    """Return the present name of a kind of job of the Compare tab."""
    return JOB_KINDS.get(name, name)


def stage_id(name: str) -> str:
    """Return the present "block/stage" of a stage of a trace."""
    block, slash, stage = name.rpartition("/")
    return block + slash + STAGES.get(stage, stage)


def old_weight_name(name: str) -> str:
    """Return the old name of a weight, or of its optimizer state, from the present name.

    The keys' and the values' projections were one weight, so they have the same old name.
    """
    for present, old in LAYER_WEIGHTS if LAYER.match(name) else OTHER_WEIGHTS:
        name = re.sub(present, old, name)
    return name


def setting_name(name: str) -> str:
    """Return the present name of a setting."""
    return SETTINGS.get(name, name)


def setting_value(name: str, value: Any) -> Any:
    """Return the present form of a setting's value, or of a list of its values."""
    if isinstance(value, list | tuple):
        return [setting_value(name, each) for each in value]
    return VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value


def upgrade_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under their present names; the last one wins where two names are one.

    Values may be lists, as in the grid of an experiment, and settings themselves, as its variants.
    """
    upgraded: dict[str, Any] = {}
    for old, value in settings.items():
        name = setting_name(old)
        if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
            upgraded[name] = [upgrade_settings(each) for each in value]
        else:
            upgraded[name] = setting_value(name, value)
    return upgraded


def add_old_keys(
    response: Mapping[str, Any], old_keys: Mapping[str, str] = RESPONSE_KEYS
) -> dict[str, Any]:
    """Return a response that also has the keys of version 0.1.0."""
    old = {old_keys[key]: value for key, value in response.items() if key in old_keys}
    return {**old, **response}


def add_old_benchmark_keys(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the benchmark that also have the keys of version 0.2.0."""
    return [
        {old: row[key] for key, old in BENCHMARK_KEYS.items() if key in row} | dict(row)
        for row in rows
    ]


def upgrade_run_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a run.json with the present names of its fields and its origin."""
    upgraded = {RUN_FIELDS.get(name, name): value for name, value in record.items()}
    return {"started_by": _derive_origin(upgraded)} | upgraded


def _derive_origin(record: Mapping[str, Any]) -> str:
    """Return what started a run of version 0.2.0 or earlier.

    Lessons and experiments hid their runs and named them "TITLE: LABEL". Those of experiments end
    with a seed.
    """
    name = str(record.get("name"))
    if record.get("hidden") is not True or ": " not in name or name.startswith("as published: "):
        return "user"
    return "experiment" if EXPERIMENT_RUN_NAME.fullmatch(name) else "lesson"


def upgrade_metrics(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of metrics.jsonl with the present names of the metrics."""
    return {METRICS.get(name, name): value for name, value in line.items()}


def upgrade_manifest(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json of a checkpoint of schema version 1 as one of version 2."""
    content = upgrade_settings(content)
    sections = {
        name: upgrade_settings(content[name])
        for name in ("task", "model", "training")
        if isinstance(content.get(name), Mapping)
    }
    return content | sections


def upgrade_options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with the present names of the options of settings."""
    upgraded = []
    for argument in arguments:
        option, equals, value = argument.partition("=")
        prefix = "--no-" if option.startswith("--no-") else "--"
        name = option.removeprefix(prefix).replace("-", "_")
        if option.startswith("--") and name in SETTINGS:
            option = prefix + SETTINGS[name].replace("_", "-")
        upgraded.append(option + equals + value)
    return upgraded


def upgrade_request(content: Any, fields: Mapping[str, Any]) -> Any:
    """Return the content of a request with the present names of its keys and actions.

    Args:
        fields: the fields of the request, by name; other keys stay.
    """
    if not isinstance(content, Mapping):
        return content
    upgraded = dict(content)
    for old, new in REQUEST_KEYS.items():
        if new in fields and new not in upgraded and old in upgraded:
            upgraded[new] = upgraded.pop(old)
            if new == "action" and isinstance(upgraded[new], str):
                upgraded[new] = RUN_ACTIONS.get(upgraded[new], upgraded[new])
    if isinstance(lesson := upgraded.get("lesson"), str):
        upgraded["lesson"] = re.sub(r"^stop-(?=\d+$)", "lesson-", lesson)
    if upgraded.get("bug") == RANDOM_BUG:
        upgraded["bug"] = "random"
    return upgraded
