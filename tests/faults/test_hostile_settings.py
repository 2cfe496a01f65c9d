"""Hostile settings from a config.json, a link or a form give a run or a ValueError.

The error names the problem, and memory stays small. An endless computation ends by the time limit
of the suite.
"""

import dataclasses
import json
import math
import tracemalloc
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.architectures import ARCHITECTURES, load_architecture
from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.checkpoint import expected_tensors
from playground.checkpoints.manifest import CheckpointError, Manifest, read_manifest
from playground.models.config import TransformerConfig
from playground.models.config_fields import ConfigError
from playground.runs.limits import ensure_memory_available
from playground.server.runs_api import describe_config
from playground.training.run_config import RunConfig, field_named, section_of_field
from playground.ui.form_schema import form_defaults
from playground.ui.form_values import (
    MAX_SETTINGS_LENGTH,
    check_form,
    parse_settings,
    run_config,
)
from playground.ui.setting_groups import ADVANCED_SETTINGS, BASIC_SETTINGS, DERIVED_SETTINGS
from tests.support.hostile_values import HOSTILE_VALUES as JSON_VALUES
from tests.support.small_runs import repeat_counts

MAX_MEMORY_BYTES = 50_000_000  # of one example
NAMES = [*BASIC_SETTINGS, *(name for names in ADVANCED_SETTINGS.values() for name in names)]
MAX_MESSAGE_LENGTH = 2500  # characters; one message lists every setting
# At least one in five examples must be valid; otherwise later code is hardly tested.
MAX_EXAMPLES_PER_VALID = 5

HOSTILE_VALUES = JSON_VALUES | st.sampled_from(
    [math.nan, math.inf, -(10**4000), "NaN", "a " * 5000, "𝟙", "__import__('os')"]
)
HOSTILE_NAMES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["__class__", "self", "d_model ", "D_MODEL", "\ud800", "", "x" * 5000]),
)


def valid_values(name):
    """Return a value within the range of a setting.

    It may contradict other settings.
    """
    field = field_named(name)
    low, high = field.metadata["low"], field.metadata["high"]
    if field.metadata["choices"]:
        return st.sampled_from(field.metadata["choices"])
    if isinstance(field.default, bool):
        return st.booleans()
    if isinstance(field.default, str):
        return st.just(field.default)
    return st.integers(low, high) if isinstance(field.default, int) else st.floats(low, high)


# compatible with most other settings
BASE_SETTINGS = {"task": "reverse", "architecture": "transformer"}
INDEPENDENT_SETTINGS = sorted(
    set(section_of_field())
    - {
        *("dataset_sha256", "dataset_symbols", "max_target_length", "source_vocab_size"),
        *("target_vocab_size", "max_positions"),
    }
)
TRANSFORMER_SETTINGS = [
    name
    for name in INDEPENDENT_SETTINGS
    if name in TransformerConfig.__dataclass_fields__ or section_of_field()[name] != "model"
]


@st.composite
def fields(draw):
    """Generate flat settings: the default run with some changes, often an odd one."""
    changed = draw(st.lists(st.sampled_from(TRANSFORMER_SETTINGS), max_size=3, unique=True))
    values = BASE_SETTINGS | {name: draw(valid_values(name)) for name in changed}
    if draw(st.integers(0, 2)) == 0:
        for name in draw(
            st.lists(
                st.one_of(st.sampled_from([*INDEPENDENT_SETTINGS, "architecture"]), HOSTILE_NAMES),
                min_size=1,
                max_size=2,
            )
        ):
            values[name] = draw(HOSTILE_VALUES)
    return values


@contextmanager
def limit_memory():
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY_BYTES
    finally:
        tracemalloc.stop()


def run_examples(count, strategy, examine):
    """Run `examine` on this many examples; it returns whether an example is valid.

    At least one in five must be valid, and some must not.
    """
    valid = []

    @settings(max_examples=count)
    @given(strategy)
    def run_example(example):
        with limit_memory():
            valid.append(examine(example))

    run_example()
    assert len(valid) >= 0.8 * count
    assert len(valid) / MAX_EXAMPLES_PER_VALID <= sum(valid) < len(valid)


def check_config(config):
    """Compute what every run needs before its start, which must be cheap."""
    assert RunConfig.from_flat(config.to_flat()) == config
    assert config.estimate_memory() > 16 * parameter_count(config.model) > 0
    assert describe_config(config)
    json.dumps(config.to_flat(), allow_nan=False)
    with suppress(ConfigError):
        ensure_memory_available(config)


def get_error(create, *arguments):
    """Return the error of these settings, or None for valid ones.

    The error is a short message, and always a ValueError.
    """
    caught = None
    try:
        check_config(create(*arguments))
    except ValueError as error:
        caught = error
    assert caught is None or 10 < len(str(caught)) < MAX_MESSAGE_LENGTH, str(caught)[:200]
    return caught


@repeat_counts(60, 5000)
def test_settings_in_a_link(count):
    def examine(values):
        return get_error(parse_settings, json.dumps(values)) is None

    run_examples(count, fields(), examine)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"steps": 1e999}',
        '{"steps": 1, "steps": 2}',
        '{"a":' * 5000,
        "\ud800",
        "{" + " " * MAX_SETTINGS_LENGTH,
        '{"steps": ' + "9" * 5000 + "}",
        '{"device": "cuda:0; rm -rf /"}',
        '{"task": "rows", "rows": "' + "0" * 64 + '", "vocabulary": "' + "a " * 9000 + '"}',
    ],
    ids=lambda text: repr(text[:30]),
)
def test_invalid_settings_in_a_link_are_rejected(text):
    assert get_error(parse_settings, text) is not None


def parts(values):
    """Return flat settings as config.json stores them."""
    config = Manifest(RunConfig.from_flat(BASE_SETTINGS), 3, 1.0, "cpu").to_json()
    content = json.loads(config)
    for name, value in values.items():
        part = section_of_field().get(name) if isinstance(name, str) else None
        (content[part] if part else content)[name] = value
    return content


OUTSIDE = st.sampled_from(
    [
        *("schema_version", "task", "model", "training", "step", "seconds", "device", "scores"),
        *("versions", "changes", "sha256", "auto_map", "torch_dtype", "extra"),
    ]
)


@st.composite
def manifests(draw):
    """Generate the content of config.json, in part with other damaged keys."""
    content = parts(draw(fields()))
    if draw(st.integers(0, 4)) == 0:
        content[draw(OUTSIDE)] = draw(HOSTILE_VALUES)
    if draw(st.integers(0, 9)) == 0:
        del content[draw(st.sampled_from(sorted(content)))]
    return content


@repeat_counts(60, 5000)
def test_config_json(tmp_path, count):
    def examine(content):
        # NaN, infinity and lone surrogates, as in JSON
        (tmp_path / "config.json").write_text(json.dumps(content))
        error = get_error(lambda folder: read_manifest(folder).config, tmp_path)
        assert error is None or (isinstance(error, CheckpointError) and tmp_path.name in str(error))
        return error is None

    run_examples(count, manifests(), examine)


@repeat_counts(60, 5000)
def test_form(count):
    """A client may send anything, and JSON has one type of number."""

    def examine(values):
        form = form_defaults() | {n: value for n, value in values.items() if n in NAMES}
        checked = check_form(form)
        field_errors = checked["errors"]
        assert bool(field_errors) != bool(checked["size"])
        assert set(field_errors) <= set(NAMES)
        if not field_errors:
            check_config(run_config(form))
        return not field_errors

    floating = fields().map(
        lambda values: {
            n: float(v) if type(v) is int and abs(v) < 2**53 and v % 2 else v
            for n, v in values.items()
        }
    )
    run_examples(count, floating, examine)


# all other settings have their maximum
FAST_SETTINGS = {"dropout": 0.0, "n_heads": 64, "n_kv_heads": 0, "d_k": 0, "d_v": 0, "n_layers": 2}


def test_largest_valid_settings_are_estimated_without_allocation():
    """Valid settings may describe a model that no machine can hold."""
    expected_tensors(RunConfig())  # exclude the memory of imports from the measurement
    for family in ARCHITECTURES:
        load_architecture(family)
        kind = ARCHITECTURES[family].config_class
        largest = {
            field.name: field.metadata["high"]
            for field in dataclasses.fields(kind)
            if field.metadata["high"] is not None
        }
        largest |= FAST_SETTINGS | {"max_positions": 4096}
        largest |= dict.fromkeys(("source_vocab_size", "target_vocab_size"), 65)
        values = {
            name: value
            for name, value in largest.items()
            if name in ARCHITECTURES[family].setting_names() or name in DERIVED_SETTINGS
        }
        config = RunConfig.from_flat(
            {"architecture": family, "max_length": 512, "n_symbols": 62} | values
        )
        with limit_memory():
            assert config.estimate_memory() > 10**9
            assert expected_tensors(config)
