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
from playground.checkpoints.checkpoint import expected_tensors
from playground.checkpoints.manifest import CheckpointError, Manifest, read_manifest
from playground.models.config import ModelConfig
from playground.models.config_fields import ConfigError
from playground.runs.memory import ensure_memory_available
from playground.server.runs_api import describe_config, settings_for_viewer
from playground.training.config import SECTIONS, RunConfig, field_named, section_of_field
from playground.training.setting_changes import MUTABLE_SETTINGS, SettingChange
from playground.ui.form_values import (
    MAX_SETTINGS_LENGTH,
    estimate_and_validate,
    form_values,
    parse_settings,
    run_config,
    validate_form,
)
from playground.ui.setting_groups import ADVANCED_SETTINGS, BASIC_SETTINGS, DERIVED_SETTINGS
from playground.ui.task_info import task_description_html
from tests.support.small_runs import repeat_counts

MOST = 50_000_000  # bytes that one of them may take
NAMES = [*BASIC_SETTINGS, *(name for names in ADVANCED_SETTINGS.values() for name in names)]
LONGEST_SENTENCE = 2500  # characters; one of them lists every setting there is
FEWEST_VALID = (
    5  # one in so many must be a run, or hardly anything was tried that could go wrong later
)

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.sampled_from([10**400, -(10**4000), 2**31, 2**63, 0, -1, 1]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=20),
    st.sampled_from(
        [
            "",
            "\x00",
            "\ud800",
            "../../etc/passwd",
            "<script>",
            "__import__('os')",
            "NaN",
            "a " * 5000,
            "𝟙",
            "1",
        ]
    ),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    st.integers(1, 900).map(lambda depth: json.loads("[" * depth + "]" * depth)),
)
ODD_NAMES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["__class__", "self", "d_model ", "D_MODEL", "\ud800", "", "x" * 5000]),
)


def inside(name):
    """Return a value within the range of a setting.

    It may contradict other settings.
    """
    each = field_named(name)
    low, high = each.metadata["low"], each.metadata["high"]
    if each.metadata["choices"]:
        return st.sampled_from(each.metadata["choices"])
    if isinstance(each.default, bool):
        return st.booleans()
    if isinstance(each.default, str):
        return st.just(each.default)
    return st.integers(low, high) if isinstance(each.default, int) else st.floats(low, high)


TAMED = {"task": "reverse", "architecture": "transformer"}  # most of the others go with these
PLAIN = sorted(
    set(section_of_field())
    - {
        "dataset_sha256",
        "dataset_symbols",
        "max_target_length",
        "source_vocab_size",
        "target_vocab_size",
        "max_positions",
    }
)
OF_TRANSFORMER = [
    name
    for name in PLAIN
    if name in ModelConfig.__dataclass_fields__ or section_of_field()[name] != "model"
]


@st.composite
def fields(draw):
    """Generate flat settings: the default run with some changes, often an odd one."""
    changed = draw(st.lists(st.sampled_from(OF_TRANSFORMER), max_size=3, unique=True))
    values = TAMED | {name: draw(inside(name)) for name in changed}
    if draw(st.integers(0, 2)) == 0:
        for name in draw(
            st.lists(
                st.one_of(st.sampled_from([*PLAIN, "architecture"]), ODD_NAMES),
                min_size=1,
                max_size=2,
            )
        ):
            values[name] = draw(ODD)
    return values


@contextmanager
def in_little_memory():
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


def examined(count, strategy, examine):
    """Run `examine` on this many examples; it returns whether an example is valid.

    At least one in five must be valid, and some must not.
    """
    valid = []

    @settings(max_examples=count)
    @given(strategy)
    def each(example):
        with in_little_memory():
            valid.append(examine(example))

    each()
    assert len(valid) >= 0.8 * count
    assert len(valid) / FEWEST_VALID <= sum(valid) < len(valid)


def used(config):
    """Compute what every run needs before its start, which must be cheap."""
    assert RunConfig.from_flat(config.to_flat()) == config
    assert config.estimate_memory() > 16 * config.model.parameter_count() > 0
    assert describe_config(config)
    json.dumps(settings_for_viewer(config), allow_nan=False)
    with suppress(ConfigError):
        ensure_memory_available(config)


def refusal_of(make, *arguments):
    """Return the error of these settings, or None for valid ones.

    The error is a short message, and always a ValueError.
    """
    refusal = None
    try:
        used(make(*arguments))
    except ValueError as error:
        refusal = error
    assert refusal is None or 10 < len(str(refusal)) < LONGEST_SENTENCE, str(refusal)[:200]
    return refusal


@repeat_counts(100, 5000)
def test_flat_settings(count):
    def examine(values):
        error = refusal_of(RunConfig.from_flat, values)
        assert error is None or isinstance(error, ConfigError)
        return error is None

    examined(count, fields(), examine)


@repeat_counts(100, 5000)
def test_settings_in_a_link(count):
    def examine(values):
        return refusal_of(parse_settings, json.dumps(values)) is None

    examined(count, fields(), examine)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '"x"',
        "17",
        "NaN",
        '{"a": NaN}',
        '{"steps": 1e999}',
        '{"steps": 1, "steps": 2}',
        "[" * MAX_SETTINGS_LENGTH,
        '{"a":' * 5000,
        "\ud800",
        "{" + " " * MAX_SETTINGS_LENGTH,
        '{"steps": ' + "9" * 5000 + "}",
        '{"__class__": 1}',
        '{"": {}}',
        '{"task": ["reverse"]}',
        '{"family": {"transformer": 1}}',
        '{"device": "cuda:0; rm -rf /"}',
        '{"rows": "../../../etc/passwd"}',
        '{"task": "rows", "rows": "' + "0" * 64 + '", "vocabulary": "' + "a " * 9000 + '"}',
    ],
    ids=lambda text: repr(text[:30]),
)
def test_invalid_settings_in_a_link_are_rejected(text):
    assert refusal_of(parse_settings, text) is not None


def parts(values):
    """Return flat settings as config.json stores them."""
    config = Manifest(RunConfig.from_flat(TAMED), 3, 1.0, "cpu").to_json()
    content = json.loads(config)
    for name, value in values.items():
        part = section_of_field().get(name) if isinstance(name, str) else None
        (content[part] if part else content)[name] = value
    return content


OUTSIDE = st.sampled_from(
    [
        "schema_version",
        "task",
        "model",
        "training",
        "step",
        "seconds",
        "device",
        "scores",
        "versions",
        "changes",
        "sha256",
        "auto_map",
        "torch_dtype",
        "extra",
    ]
)


@st.composite
def manifests(draw):
    """Generate the content of config.json, in part with other damaged keys."""
    content = parts(draw(fields()))
    if draw(st.integers(0, 4)) == 0:
        content[draw(OUTSIDE)] = draw(ODD)
    if draw(st.integers(0, 9)) == 0:
        del content[draw(st.sampled_from(sorted(content)))]
    return content


@repeat_counts(100, 5000)
def test_config_json(tmp_path, count):
    def examine(content):
        # NaN, infinity and lone surrogates as JSON has them
        (tmp_path / "config.json").write_text(json.dumps(content))
        error = refusal_of(lambda folder: read_manifest(folder).config, tmp_path)
        assert error is None or (isinstance(error, CheckpointError) and str(tmp_path) in str(error))
        return error is None

    examined(count, manifests(), examine)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        "{}," * 333_333,
        "[" + "[]," * 333_332 + "[]]",
        "[" + "{}," * 333_332 + "{}]",
        "[" + "0.5," * 249_998 + "0]",
        '{"schema_version": 1, "model": {' + ",".join(f'"a{n}":[]' for n in range(80_000)) + "}}",
        '"' + "\\u0001" * 166_000 + '"',
        "9" * 999_999,
        "1e" + "9" * 999_990,
        '{"schema_version": 1, "step": ' + "1" * 4000 + "}",
    ],
    ids=lambda text: text[:12],
)
def test_a_megabyte_of_any_text_is_rejected_in_little_memory(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    tracemalloc.start()
    try:
        with in_little_memory(), pytest.raises(CheckpointError):
            read_manifest(tmp_path)
    finally:
        tracemalloc.stop()


DEFAULTS = {name: field_named(name).default for name in NAMES if name in section_of_field()}
SENT = {"preset": "fast"} | DEFAULTS | form_values(RunConfig())


@repeat_counts(100, 5000)
def test_a_form(count):
    """The components send numbers as floats, and a client may send anything."""

    def examine(values):
        sent = SENT | {name: value for name, value in values.items() if name in NAMES}
        wrong = validate_form(list(sent), list(sent.values()))
        weight, problem = estimate_and_validate(sent)
        assert bool(wrong) == bool(problem) != bool(weight)
        assert set(wrong) <= set(NAMES)
        assert "<" not in problem
        assert isinstance(task_description_html(sent["task"]), str)
        if not wrong:
            used(run_config(sent))
        return not wrong

    floating = fields().map(
        lambda values: {
            n: float(v) if type(v) is int and abs(v) < 2**53 and v % 2 else v
            for n, v in values.items()
        }
    )
    examined(count, floating, examine)


@pytest.mark.parametrize(
    "kind", [kind for kinds in SECTIONS.values() for kind in kinds], ids=lambda kind: kind.__name__
)
def test_each_part_on_its_own(kind):
    names = [each.name for each in dataclasses.fields(kind)]

    @settings(max_examples=50)
    @given(st.dictionaries(st.sampled_from(names), ODD, max_size=2))
    def examine(values):
        try:
            kind(**values)
        except ConfigError as error:
            if error.field not in names:
                raise

    examine()


AS_THEY_SHOULD_BE = st.one_of(
    st.tuples(st.integers(0, 9), st.just("steps"), st.integers(1, 9)),
    st.tuples(st.integers(0, 9), st.sampled_from(["speed", "until"]), st.floats(0, 1)),
)
HARMED = st.tuples(
    st.one_of(st.integers(0, 9), ODD), st.sampled_from([*MUTABLE_SETTINGS, "seed"]), ODD
)
CHANGES = st.one_of(AS_THEY_SHOULD_BE, AS_THEY_SHOULD_BE, HARMED).map(list)


@repeat_counts(100, 4000)
def test_changes_on_the_way(count):
    def examine(lines):
        try:
            changes = SettingChange.parse(lines)
        except ValueError:
            return False
        assert all(math.isfinite(change.value) for change in changes)
        assert SettingChange.parse([change.to_list() for change in changes]) == changes
        return True

    examined(count, st.lists(CHANGES, max_size=2), examine)


# the rest as large as can be
FAST_ENOUGH = {"dropout": 0.0, "n_heads": 64, "n_kv_heads": 0, "d_k": 0, "d_v": 0, "n_layers": 2}


def test_largest_valid_settings_are_estimated_without_allocation():
    """Valid settings may describe a model that no machine can hold."""
    expected_tensors(RunConfig())  # what torch and a family import is not what is measured
    for family in ARCHITECTURES:
        load_architecture(family)
        kind = ARCHITECTURES[family].config_class
        largest = {
            each.name: each.metadata["high"]
            for each in dataclasses.fields(kind)
            if each.metadata["high"] is not None
        }
        largest |= FAST_ENOUGH | {
            "source_vocab_size": 65,
            "target_vocab_size": 65,
            "max_positions": 4096,
        }
        values = {
            name: value
            for name, value in largest.items()
            if name in ARCHITECTURES[family].setting_names() or name in DERIVED_SETTINGS
        }
        config = RunConfig.from_flat(
            {"architecture": family, "max_length": 512, "n_symbols": 62} | values
        )
        with in_little_memory():
            assert config.estimate_memory() > 10**9
            assert expected_tensors(config)
