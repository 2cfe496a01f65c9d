from collections import Counter

import pytest
import torch

from playground.pretrained.benchmark.examples import MAX_FEW_SHOT_EXAMPLES, sample_examples
from playground.pretrained.prompts import Example, few_shot_prompt, masked_prompt
from playground.tasks import load_task
from playground.tasks.held_out import is_held_out

REVERSE, COPY = load_task("reverse", 10), load_task("copy", 10)


def held_out(items, task=REVERSE):
    longest = max(len(item.source) for item in items)
    rows = [task.vocabulary.encode(item.source_text) for item in items]
    padded = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return is_held_out(padded, torch.tensor([len(row) for row in rows])).tolist()


def test_evaluation_examples_are_held_out_distinct_and_balanced():
    sample = sample_examples(REVERSE, 60, 1, 6)
    assert len({item.source for item in sample.examples}) == 60
    assert all(held_out(sample.examples))
    assert all(item.target == item.source[::-1] != item.source for item in sample.examples)
    counts = Counter(len(item.source) for item in sample.examples)
    assert counts[1] == 0  # a single symbol is a palindrome
    assert counts[2] < 12  # few are held out
    assert max(counts.values()) - min(counts[length] for length in (3, 4, 5, 6)) <= 2
    assert "left out" in sample.note
    assert sample == sample_examples(REVERSE, 60, 1, 6)


def test_tasks_that_copy_exclude_no_examples_and_have_a_note():
    sample = sample_examples(COPY, 20, 3, 3)
    assert len(sample.examples) == 20
    assert all(item.target == item.source for item in sample.examples)
    assert "none are left out" in sample.note


def test_fewer_come_where_fewer_exist():
    sample = sample_examples(REVERSE, 500, 3, 3)
    assert 20 < len(sample.examples) < 70  # of a thousand sequences one in sixteen is held out
    assert f"only {len(sample.examples)} exist" in sample.note


@pytest.mark.parametrize(("low", "high"), [(3, 3), (1, 10)])
def test_worked_examples_are_no_items_and_could_be_training_data(low, high):
    sample = sample_examples(REVERSE, 40, low, high)
    assert len(set(sample.few_shot_examples)) == MAX_FEW_SHOT_EXAMPLES
    assert not any(held_out(sample.few_shot_examples))
    assert not {item.source for item in sample.examples} & {
        item.source for item in sample.few_shot_examples
    }
    assert all(item.target == item.source[::-1] != item.source for item in sample.few_shot_examples)


def test_prompts_match_their_documentation():
    item, example = Example(("3", "1", "4"), ("4", "1", "3")), Example(("2", "7"), ("7", "2"))
    assert few_shot_prompt(item, []) == "Input: 3 1 4\nOutput:"
    assert few_shot_prompt(item, [example]) == "Input: 2 7\nOutput: 7 2\n\nInput: 3 1 4\nOutput:"
    assert masked_prompt(item, [], "[MASK]") == "Input: 3 1 4\nOutput: [MASK] [MASK] [MASK]"
