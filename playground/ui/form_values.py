"""The values of the form: from and to the configuration of a run, with their errors."""

import re
from collections.abc import Callable
from typing import Any

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.common import messages
from playground.common.strict_json import parse_strict_json
from playground.datasets.pairs import DatasetError, DatasetNotFoundError
from playground.datasets.storage import load_metadata
from playground.models.config_fields import ConfigError
from playground.runs.limits import ensure_memory_available
from playground.tasks import LOOKUP
from playground.training.run_config import RunConfig, field_named, section_of_field

from .setting_groups import PRESET_SETTINGS, is_used_by_architecture, label_of

OwnsDataset = Callable[[str], bool]  # whether the user owns the dataset with a SHA-256
OWNS_NONE: OwnsDataset = frozenset[str]().__contains__
MAX_SETTINGS_LENGTH = 40_000  # characters; the vocabulary of a dataset may have half of them


def run_config(values: dict[str, Any], owns_dataset: OwnsDataset = OWNS_NONE) -> RunConfig:
    """Return the run of the form values, or raise ConfigError with the field."""
    family = values["architecture"]
    if isinstance(family, str) and family in ARCHITECTURES:  # validation rejects others below
        values = {
            name: value
            for name, value in values.items()
            if name in ("architecture", "preset") or is_used_by_architecture(name, family)
        }
    typed_values = {
        n: int(v)
        if isinstance(v, float)
        and v.is_integer()
        and n != "architecture"
        and isinstance(field_named(n).default, int)
        else v
        for n, v in values.items()
        if n != "preset"
    }
    config = RunConfig.from_flat(typed_values | dataset_settings(typed_values, owns_dataset))
    config.training.check_effects()
    return config


def dataset_settings(values: dict[str, Any], owns_dataset: OwnsDataset) -> dict[str, Any]:
    """Return the settings that follow from a dataset; {} for other tasks.

    Raises ConfigError if no dataset is selected, if it is not stored here or not the user's, or if
    it has no sequences of these lengths.
    """
    if values.get("task") != LOOKUP:
        return {"dataset_sha256": ""}
    sha256 = values.get("dataset_sha256")
    if not sha256:
        raise ConfigError(
            "dataset_sha256", "no dataset is selected; add one below and press Use these examples"
        )
    try:
        is_own = isinstance(sha256, str) and owns_dataset(sha256)
        metadata = load_metadata(sha256 if is_own else "")
    except DatasetNotFoundError:
        raise ConfigError("dataset_sha256", messages.missing_dataset(sha256)) from None
    except DatasetError as error:
        raise ConfigError("dataset_sha256", str(error)) from None
    max_source_length, min_length = metadata["longest_source"], values.get("min_length")
    if isinstance(min_length, int | float) and min_length > max_source_length:
        raise ConfigError(
            "min_length",
            f"min_length is {min_length}, but the longest source of this dataset has "
            f"{max_source_length} tokens; lower it",
        )
    return {
        "dataset_symbols": " ".join(metadata["vocabulary"]),
        "max_target_length": metadata["longest_target"],
    }


def parse_settings(text: str) -> RunConfig:
    """Return the run of a link or JSON text; raise ValueError, with the labels of the form."""
    try:
        content = (
            parse_strict_json(text.encode("utf-8", "replace"))
            if len(text) < MAX_SETTINGS_LENGTH
            else None
        )
    except ValueError as error:
        raise ValueError("they are no JSON; copy the whole of them") from error
    if not isinstance(content, dict):
        raise ValueError("these are no settings: a JSON object of names and values is expected")
    if content.get("task") == LOOKUP and not content.get("dataset_sha256"):  # of another owner
        raise ValueError(
            "the dataset of these settings is its owner's; select Your own data as the task, and "
            "add your own"
        )
    try:
        return RunConfig.from_flat(content)
    except ConfigError as error:
        raise ConfigError(error.field, with_labels(error)) from None
    except TypeError:  # a list in place of a name
        raise ValueError(
            "these are no settings: values must be numbers, texts, true or false"
        ) from None


def form_errors(values: dict[str, Any], error: ConfigError) -> dict[str, str]:
    """Return the errors of the form by field."""
    return {error.field if error.field in values else "preset": with_labels(error)}


def with_labels(error: ConfigError) -> str:
    """Return the error with labels in place of setting names."""
    text = str(error).replace(" is None", " is empty")
    for name in sorted(section_of_field(), key=len, reverse=True):
        text = (
            re.sub(rf"\b{name}\b", label_of(name), text)
            if "_" in name or name == error.field
            else text
        )
    return text + "."


def form_values(config: RunConfig) -> dict[str, Any]:
    """Return the form values of a run, for the settings that a preset covers."""
    fields = config.to_flat()
    return {
        name: fields[name] if name in fields else field_named(name).default
        for name in PRESET_SETTINGS
    }


def check_form(
    values: dict[str, Any],
    check: Callable[[RunConfig], None] = ensure_memory_available,
    owns_dataset: OwnsDataset = OWNS_NONE,
) -> dict[str, Any]:
    """Return the `size` of the model and the `errors` of the form; one of them is empty.

    `check` raises ConfigError for a run that cannot start.
    """
    if values["task"] == LOOKUP and not values["dataset_sha256"]:
        hint = "Add a dataset below and press Use these examples."
        return {"size": hint, "errors": {}}
    try:
        config = run_config(values, owns_dataset)
        check(config)
    except ConfigError as error:
        return {"size": "", "errors": form_errors(values, error)}
    count, memory = parameter_count(config.model), config.estimate_memory() / 1e6
    size = f"{count:,} parameters, {memory:,.0f} MB"
    return {"size": size, "errors": {}}
