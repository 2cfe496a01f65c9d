"""Which fine-tuned models make way for a new one, and the size of an evaluation batch."""

import json
import os
import time

import pytest

from playground.errors import UserError
from playground.pretrained.finetuning import storage
from playground.pretrained.finetuning.seq2seq import PretrainedSeq2SeqConfig


def save_fine_tuned(folder, minutes, **user):
    folder.mkdir()
    (folder / "fine-tuned.json").write_text(json.dumps(user))
    os.utime(folder, (time.time() - 60 * minutes,) * 2)


def test_eviction_takes_own_models_first_and_others_after_an_hour(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "fine-tuned-models.total=3")

    def save_model(name, owner, minutes):
        save_fine_tuned(tmp_path / name, minutes, owner=owner)

    def names_to_evict(owner):
        return [path.name for path in storage.models_to_evict(tmp_path, owner)]

    save_model("old-of-ben", "ben", 50)
    save_model("old-of-ada", "ada", 40)
    assert names_to_evict("ada") == []
    save_model("new-of-ada", "ada", 10)
    assert names_to_evict("ada") == ["old-of-ada"]
    assert names_to_evict("ben") == ["old-of-ben"]
    with pytest.raises(UserError, match="this server has 3 fine-tuned models, which is"):
        names_to_evict("cy")
    os.utime(tmp_path / "old-of-ben", (time.time() - 3700,) * 2)
    assert names_to_evict("cy") == ["old-of-ben"]
    assert names_to_evict("ada") == ["old-of-ada"]


def test_an_address_with_its_share_of_models_evicts_no_other_ones(tmp_path):
    save_fine_tuned(tmp_path / "victim", 90, owner="ada", address="a")
    for number in range(3):
        assert storage.models_to_evict(tmp_path, f"new {number}", "b") == []
        save_fine_tuned(tmp_path / str(number), 50 - number, owner=str(number), address="b")
    with pytest.raises(UserError, match="your address has 3 fine-tuned models"):
        storage.models_to_evict(tmp_path, "new", "b")
    assert storage.models_to_evict(tmp_path, "1", "b") == [tmp_path / "1"]
    os.utime(tmp_path / "2", (time.time() - 3700,) * 2)
    assert storage.models_to_evict(tmp_path, "new", "b") == [tmp_path / "2"]
    assert storage.models_to_evict(tmp_path, "new", "c") == []


def test_evaluation_batches_are_bounded_by_the_vocabulary():
    sizes = {"d_model": 8, "n_heads": 1, "n_layers": 1, "d_ff": 8}
    sizes |= {"max_positions": 100, "prompt_tokens": 10}
    small, large = (
        PretrainedSeq2SeqConfig(source_vocab_size=n, target_vocab_size=n, **sizes)
        for n in (100, 50_000)
    )
    assert small.sequence_length(10, 10) == large.sequence_length(10, 10) == 30
    assert small.max_batch_size(30) == 512
    assert large.max_batch_size(30) == 16_000_000 // (30 * 50_000)
