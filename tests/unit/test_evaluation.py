import dataclasses

import pytest
import torch

from playground.architectures.seq2seq_model import Seq2SeqModel, eval_mode
from playground.evaluation import LengthResult, evaluate, mean_loss, safe_divide, score_targets
from playground.models.config import TransformerConfig
from playground.tasks import PAD, load_task
from playground.tasks.held_out import build_held_out_set

REVERSE = load_task("reverse")


class Oracle(Seq2SeqModel):
    """A model that predicts the rows of `knows` correctly, and EOS for the others."""

    def __init__(self, knows):
        super().__init__()
        self.config = TransformerConfig()
        self.knows = knows

    def loss(self, batch, label_smoothing=0.0):
        raise NotImplementedError("an oracle does not learn")

    def attention_weights(self, batch):
        raise NotImplementedError("an oracle does not look")

    def attention_tokens(self, batch):
        return {}

    def is_exact_match(self, batch):
        return self.knows((batch.source_BS > 2).sum(1))

    def generate(self, source_BS, max_tokens):
        return torch.full((len(source_BS), max_tokens), PAD)


class Stutterer(Oracle):
    """Predicts the first source token at every position."""

    def generate(self, source_BS, max_tokens):
        return source_BS[:, :1].expand(-1, max_tokens)


ALWAYS, NEVER = Oracle(lambda lengths_B: lengths_B > 0), Oracle(lambda lengths_B: lengths_B < 0)


def test_each_length_has_its_own_scores():
    requested = build_held_out_set(REVERSE, 1500, 1, 8)
    scores = evaluate(Oracle(lambda lengths_B: lengths_B % 2 == 0), requested)
    assert [each.exact_match for each in scores.by_length] == [0.0, 1.0] * 4
    assert [each.token_accuracy for each in scores.by_length] == [0.0, 1.0] * 4
    assert [each.length for each in scores.by_length] == list(range(1, 9))
    assert [each.n for each in scores.by_length] == torch.bincount(requested.lengths_B).tolist()[1:]
    assert {each.length: each.available for each in scores.by_length} == requested.num_available
    even_B = requested.lengths_B % 2 == 0
    assert scores.exact_match == pytest.approx(even_B.float().mean().item())
    assert scores.token_accuracy == pytest.approx(
        ((requested.lengths_B + 1) * even_B).sum().item() / (requested.lengths_B + 1).sum().item()
    )


def test_token_accuracy_is_by_position_and_counts_missing_as_wrong():
    requested = build_held_out_set(REVERSE, 300, 1, 5)
    right = tokens = 0
    for row in requested.batch.source_BS.tolist():
        symbols = [token for token in row if token > 2]
        right += sum(symbol == symbols[0] for symbol in symbols)
        tokens += len(symbols) + 1  # EOS, which the stutterer never writes
    assert evaluate(Stutterer(NEVER.knows), requested).token_accuracy == right / tokens
    assert 0 < right < tokens


def test_scores_equal_a_count_of_free_running_predictions(ages):
    requested = build_held_out_set(REVERSE, 600, 1, 5)
    recorded = []
    for model in ages.values():
        answers = model.generate(requested.batch.source_BS, 6).tolist()
        rows = right_rows = tokens = right_tokens = 0
        for label, answer in zip(requested.batch.labels_BT.tolist(), answers, strict=True):
            real = [(a, b) for a, b in zip(label, answer, strict=True) if a != PAD]
            rows, right_rows = rows + 1, right_rows + all(a == b for a, b in real)
            tokens, right_tokens = tokens + len(real), right_tokens + sum(a == b for a, b in real)
        scores = evaluate(model, requested)
        expected = rows, right_rows / rows, right_tokens / tokens
        assert (scores.n, scores.exact_match, scores.token_accuracy) == expected
        recorded.append(scores.token_accuracy)
    assert recorded[0] < 0.2 < recorded[2] < 0.95 < recorded[-1]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_held_out_loss_is_the_training_loss_of_the_same_sequences(ages, label_smoothing):
    requested = build_held_out_set(REVERSE, 400, 1, 5)
    batch = requested.batch.select(torch.arange(400))
    batch = dataclasses.replace(batch, loss_weight_B=torch.ones(400))
    losses = []
    for model in ages.values():
        scores_3N = score_targets(model, requested, label_smoothing=label_smoothing)
        losses.append(mean_loss(requested, scores_3N))
        with eval_mode(model), torch.no_grad():
            assert losses[-1] == pytest.approx(float(model.loss(batch, label_smoothing)), rel=1e-5)
    assert losses[0] > 2 > losses[-1]


def test_a_model_without_teacher_forced_scores_has_no_held_out_loss():
    requested = build_held_out_set(REVERSE, 40, 1, 5)
    assert mean_loss(requested, score_targets(ALWAYS, requested)) is None


def test_length_without_held_out_sequences_scores_none_not_zero():
    scores = evaluate(ALWAYS, build_held_out_set(load_task("reverse", 2), 50, 4, 8))
    by_length = {each.length: each for each in scores.by_length}
    assert by_length[4] == LengthResult(4, 0, 0, None, None)
    assert by_length[8].exact_match == 1.0


def test_nothing_to_count_is_a_share_of_zero():
    assert (safe_divide(0, 0), safe_divide(1, 4), safe_divide(4, 4)) == (0.0, 0.25, 1.0)


def test_scoring_leaves_the_model_in_its_mode_and_torchs_generator_alone(ages):
    model = ages[30]
    for training in (True, False):
        model.train(training)
        before = torch.get_rng_state()
        evaluate(model, build_held_out_set(REVERSE, 100, 1, 5))
        assert torch.equal(torch.get_rng_state(), before)
        assert model.training == training
