import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.architectures.parameter_groups import parameter_count
from playground.models.config_fields import ConfigError
from playground.models.recurrent import Recurrent
from playground.tasks import TASKS
from playground.training.run_config import (
    SECTIONS,
    RunConfig,
    TaskConfig,
    field_named,
    section_of_field,
)

NAMES = list(section_of_field())


def inside(name):
    """Return small values within a setting's range, most of which are compatible."""
    each = field_named(name)
    if each.metadata["choices"]:
        return st.sampled_from(each.metadata["choices"])
    if isinstance(each.default, bool):
        return st.booleans()
    if isinstance(each.default, int):
        return st.integers(each.metadata["low"], each.metadata["high"])
    return st.floats(each.metadata["low"], each.metadata["high"])


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_explains_itself_and_has_a_default_that_it_accepts(name):
    each = field_named(name)
    assert each.metadata["help"].endswith(".")
    numeric = isinstance(each.default, int | float) and not isinstance(each.default, bool)
    assert numeric == (each.metadata["low"] is not None) == (each.metadata["high"] is not None)


def test_names_are_unique_across_the_parts():
    owners = [
        {each.name for kind in kinds for each in dataclasses.fields(kind)}
        for kinds in SECTIONS.values()
    ]
    assert len(NAMES) == len(set().union(*owners)) == sum(map(len, owners))


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_rejects_invalid_values_by_name(name):
    is_boolean = isinstance(field_named(name).default, bool)
    for value in (math.nan, math.inf, -1, None, "ten", [], {}, *([] if is_boolean else [True])):
        with pytest.raises(ConfigError) as caught:
            RunConfig.from_flat({name: value})
        assert caught.value.field == name


@settings(max_examples=80)
@given(st.fixed_dictionaries({}, optional={name: inside(name) for name in NAMES}))
def test_settings_in_range_round_trip_or_raise_error_with_field_name(values):
    run, complaint = None, None
    try:
        run = RunConfig.from_flat(values)
    except ConfigError as error:
        complaint = error
    if run is None:
        assert complaint.field in NAMES
        assert complaint.field in str(complaint)
        return
    assert RunConfig.from_flat(run.to_flat()) == run
    settings_of_run = run.to_flat()
    assert {name: settings_of_run.get(name, field_named(name).default) for name in values} == values
    assert run.estimate_memory() > 16 * parameter_count(run.model) > 0
    assert run.model.d_model % run.model.n_heads == 0 or (run.model.d_k and run.model.d_v)
    assert run.model.n_heads % run.model.n_kv_heads_resolved == 0


def test_the_defaults_survive_the_round_trip():
    run = RunConfig()
    assert RunConfig.from_flat({}) == run == RunConfig.from_flat(run.to_flat())
    assert set(run.to_flat()) == {*NAMES, "architecture"} - {"cell", "attention"}


DATASET = {"task": "dataset", "dataset_sha256": "0" * 64}


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"learningrate": 0.1}, "learningrate", "is not a setting of a run; the settings are task"),
        (
            {"max_length": 20, "max_positions": 20},
            "max_length",
            "max_length is 20, but the model's max_positions 20 allow 19 tokens",
        ),
        (
            {"source_vocab_size": 14, "share_embeddings": False},
            "source_vocab_size",
            "is 14, but 10 symbols and 3 special tokens make 13",
        ),
        ({"target_vocab_size": 14}, "target_vocab_size", "is 14, but 10 symbols and 3 special"),
        (DATASET | {"dataset_symbols": "cafe\u0301 e"}, "dataset_symbols", "add the dataset again"),
        ({"min_length": 7, "max_length": 6}, "min_length", "min_length is 7, above max_length 6"),
        (
            {"task": "duplicate", "max_positions": 20},
            "max_positions",
            "max_positions is 20, but targets of this task need 21; raise max_positions",
        ),
    ],
    ids=str,
)
def test_settings_that_fit_no_run_are_rejected_by_name(values, field, message):
    with pytest.raises(ConfigError, match=message) as caught:
        RunConfig.from_flat(values)
    assert caught.value.field == field


def test_replacing_changes_only_the_named_components():
    run = RunConfig.from_flat({"seed": 3, "d_model": 32})
    changed = run.replace(seed=4, dropout=0.1)
    assert changed.to_flat() == run.to_flat() | {"seed": 4, "dropout": 0.1}
    assert run.training.seed == 3


def test_vocabulary_and_positions_fit_the_task_by_default():
    run = RunConfig.from_flat({"n_symbols": 36, "max_length": 20})
    sizes = {"source_vocab_size": 39, "target_vocab_size": 39, "max_positions": 21}
    assert run.to_flat().items() >= sizes.items()
    assert RunConfig.from_flat({"max_length": 8, "max_positions": 30}).model.max_positions == 30
    assert RunConfig.from_flat({"task": "duplicate"}).model.max_positions == 21
    assert TaskConfig(**DATASET, dataset_symbols="caf\u00e9 \u0301 e").n_task_symbols == 3


@pytest.mark.parametrize(
    ("values", "fewest"),
    [
        ({"n_symbols": 2}, 8),
        ({"n_symbols": 62}, 2),
        ({"task": "brackets"}, 8),
        ({"task": "addition"}, 4),
        ({"task": "sort"}, 3),
    ],
    ids=str,
)
def test_max_length_with_too_few_sequences_is_rejected_with_minimum(values, fewest):
    assert TaskConfig(**values, max_length=fewest).max_length == fewest
    with pytest.raises(ConfigError, match=f"use at least {fewest}$") as caught:
        TaskConfig(**values, max_length=fewest - 1)
    assert caught.value.field == "max_length"


def test_a_larger_run_is_estimated_to_need_more_memory():
    small = RunConfig()
    for change in (
        {"batch_size": 1000},
        {"d_model": 256},
        {"d_ff": 1024},
        {"n_layers": 4},
        {"max_length": 30, "max_positions": 31},
    ):
        assert small.replace(**change).estimate_memory() > small.estimate_memory()


@pytest.mark.parametrize("name", TASKS)
def test_default_config_of_every_task_fits_vocabulary_and_positions(name):
    run = RunConfig.from_flat({"task": name})
    task = run.task.load()
    assert run.model.source_vocab_size == run.model.target_vocab_size == len(task.vocabulary)
    length = {"brackets": 16, "translate": 9}.get(name, 10)
    assert run.task.max_length == length
    assert run.model.max_positions == max(length, task.max_target_length(length)) + 1
    size = len(task.vocabulary)
    with pytest.raises(ConfigError, match=f"{size - 3} symbols and 3 special tokens make {size}"):
        run.replace(source_vocab_size=40, target_vocab_size=40)


def test_the_memory_estimate_includes_additive_attention():
    stored, estimated = {}, {}
    for alignment in ("none", "additive"):
        sizes = {"d_model": 64, "max_length": 60, "batch_size": 4}
        run = RunConfig.from_flat({"architecture": "recurrent", "attention": alignment} | sizes)
        tokens, saved = torch.full((4, 61), 5), {}

        def note(tensor, saved=saved):
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            logits_BTV = Recurrent(run.model)(tokens, tokens)
        stored[alignment] = sum(storage.nbytes() for storage in saved.values())
        estimated[alignment] = run.estimate_memory()
        assert logits_BTV.requires_grad
        assert stored[alignment] <= estimated[alignment]
    more = stored["additive"] - stored["none"]
    assert 0.8 * more <= estimated["additive"] - estimated["none"] <= 2 * more
