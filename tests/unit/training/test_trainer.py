import copy
import math

import pytest
import torch

from playground.evaluation import evaluate
from playground.tasks.held_out import build_held_out_set, sample_training_batch
from playground.training import trainer as trainer_module
from playground.training.setting_changes import SettingChange
from playground.training.step import TrainingDivergedError
from playground.training.trainer import Trainer, resolve_device
from tests.support.trainer_fingerprint import fingerprint


def trained(run, steps):
    trainer = Trainer(run.replace(max_steps=steps))
    metrics = list(trainer)
    return trainer, metrics


def snapshot(trainer):
    return copy.deepcopy(
        (
            trainer.model.state_dict(),
            {k: v for k, v in trainer.state_dict().items() if k.startswith("optimizer.")},
        )
    )


def same(one, other):
    """Return whether two snapshots are equal; NaN equals NaN."""
    return all(
        a.keys() == b.keys()
        and all(torch.equal(a[name].nan_to_num(7), b[name].nan_to_num(7)) for name in a)
        for a, b in zip(one, other, strict=True)
    )


def test_it_learns(small_run):
    _, metrics = trained(small_run, 60)
    assert metrics[-1].loss < metrics[0].loss / 4
    assert [each.step for each in metrics] == list(range(1, 61))


def test_metrics_describe_the_step(small_run):
    trainer, metrics = trained(small_run.replace(eval_every=4, warmup_steps=5), 10)
    assert [each.step for each in metrics if each.exact_match is not None] == [4, 8, 10]
    assert [each.learning_rate for each in metrics[:6]] == pytest.approx(
        [6e-3 * min(1, n / 5) for n in range(1, 7)]
    )
    seconds = [each.seconds for each in metrics]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)
    assert trainer.seconds == seconds[-1]
    for each in metrics:
        scores = each.exact_match, each.token_accuracy, each.eval_size
        assert len({score is None for score in scores}) == 1
        assert each.grad_norm > 0
        assert each.tokens_per_second > each.steps_per_second > 0
    assert metrics[-1].eval_size == 64


def test_the_loss_is_that_of_the_batch_before_the_update(small_run):
    trainer = Trainer(small_run)
    family, generator = copy.deepcopy(trainer.model), trainer.data_generator.clone_state()
    batch = sample_training_batch(trainer.task, 32, 1, 5, generator)
    assert trainer.train_step().loss == family.loss(batch).item()


def test_same_seed_gives_identical_weights_and_other_seed_does_not(small_run):
    run = small_run.replace(dropout=0.1, seed=11)
    first, second, other = (trained(each, 8)[0] for each in (run, run, run.replace(seed=12)))
    assert fingerprint(first) == fingerprint(second)
    assert fingerprint(first) != fingerprint(other)


def test_inspection_changes_nothing(small_run):
    run = small_run.replace(dropout=0.2)
    blind, _ = trained(run, 12)
    seeing = Trainer(run.replace(max_steps=12, eval_every=1))
    rows = build_held_out_set(seeing.task, 50, 1, 5).batch
    for metrics in seeing:
        assert metrics.exact_match is not None
        assert 0 < metrics.held_out_loss < 5
        requested = seeing.evaluate(50)
        assert requested == seeing.evaluate(50)
        seeing.model.attention_weights(rows)
        seeing.model.generate(rows.source_BS, 6)
        seeing.model.is_exact_match(rows)
    assert fingerprint(seeing) == fingerprint(blind)


def test_divergence_raises_and_keeps_weights_of_the_previous_step(small_run):
    sizes = {"d_model": 64, "n_layers": 3, "d_ff": 128}
    trainer = Trainer(small_run.replace(learning_rate=100, warmup_steps=0, **sizes))
    before, error = None, None
    while error is None:
        before, step = snapshot(trainer), trainer.step_count
        try:
            trainer.train_step()
        except TrainingDivergedError as diverged:
            error = diverged
    assert step > 0
    assert trainer.step_count == step
    assert same(snapshot(trainer), before)
    assert all(weight.isfinite().all() for weight in trainer.model.parameters())
    assert str(error).startswith(f"step {step + 1}: loss ")
    assert f"The weights of step {step} are kept; lower learning_rate (now 100)" in str(error)


@pytest.mark.parametrize("poison", [float("nan"), 1e38])
@pytest.mark.parametrize("name", ["output_proj.bias", "source_embedding.token_embedding.weight"])
def test_a_step_with_nonfinite_gradients_is_skipped(small_run, name, poison):
    trainer = Trainer(small_run)
    for _ in range(2):
        trainer.train_step()
    weight = trainer.model.get_parameter(name)
    healthy = weight.detach().clone()
    with torch.no_grad():
        weight[5] = poison
    before = snapshot(trainer)
    with pytest.raises(TrainingDivergedError, match="The weights of step 2 are kept"):
        trainer.train_step()
    assert trainer.step_count == 2
    assert same(snapshot(trainer), before)
    with torch.no_grad():
        weight.copy_(healthy)
    assert trainer.train_step().step == 3


def test_it_ends_early_only_once_the_score_is_confirmed_on_many_sequences(small_run):
    until = 0.5
    run = small_run.replace(stop_at_exact_match=until, eval_every=5, eval_size=1)
    trainer, metrics = trained(run.replace(learning_rate=1e-2), 300)
    attends = [each for each in metrics if each.eval_size]
    hopes = [each for each in attends if each.eval_size > 1]
    assert trainer.stopped_early
    assert len(metrics) < 300
    assert hopes[-1] is attends[-1] is metrics[-1]
    assert metrics[-1].eval_size == 2000
    assert metrics[-1].exact_match >= until
    assert len(hopes) > 1
    assert all(each.exact_match < until for each in hopes[:-1])
    assert all(each.exact_match == 0 for each in attends if each.eval_size == 1)


def test_without_until_it_continues_to_the_last_step(small_run):
    trainer, metrics = trained(small_run.replace(eval_size=1, eval_every=10), 40)
    assert any(each.exact_match == 1.0 for each in metrics)
    assert len(metrics) == 40
    assert not trainer.stopped_early


def test_a_final_evaluation_has_2000_sequences(small_run):
    assert Trainer(small_run).evaluate().n == 2000


def test_threads_are_those_of_the_run(small_run):
    for number in (2, 1):
        Trainer(small_run.replace(num_threads=number))
        assert torch.get_num_threads() == number


@pytest.mark.parametrize(
    ("num_threads", "is_small", "cores", "limit", "threads"),
    [(0, True, 8, 256, 1), (0, False, 8, 256, 8), (0, False, 8, 4, 4), (3, False, 8, 2, 2)],
)
def test_threads_are_those_of_the_setting_or_of_the_rule(
    monkeypatch, small_run, num_threads, is_small, cores, limit, threads
):
    monkeypatch.setattr(trainer_module, "ONE_THREAD_PARAMETERS", 1e9 if is_small else 1)
    monkeypatch.setattr(trainer_module, "usable_cores", lambda: cores)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    trainer = Trainer(small_run.replace(num_threads=num_threads), max_threads=limit)
    assert trainer.threads == threads


def test_reading_settings_does_not_change_process_threads(small_run):
    trainer = Trainer(small_run, [SettingChange(0, "num_threads", 2)])
    torch.set_num_threads(1)
    trainer.schedule_change("num_threads", 3)
    assert trainer.active_config.num_threads == trainer.threads == 3
    assert trainer.should_continue()
    assert torch.get_num_threads() == 1
    trainer.train_step()
    assert torch.get_num_threads() == 3
    torch.set_num_threads(1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_rejected_and_auto_uses_the_cpu(small_run):
    message = "device is 'cuda', but no CUDA GPU is available here; use auto or cpu"
    with pytest.raises(ValueError, match=message):
        Trainer(small_run.replace(device="cuda"))
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("clip", [0.0, 0.5, 100.0])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_an_update_is_the_one_that_people_write_out(small_run, clip, optimizer):
    """Compared with PyTorch's optimizers and clip_grad_norm_ on the same batches."""
    adam = {"adam_beta1": 0.7, "adam_beta2": 0.9, "adam_eps": 1e-4}
    config = small_run.replace(
        max_grad_norm=clip, optimizer=optimizer, weight_decay=0.01, momentum=0.8, **adam
    ).replace(warmup_steps=0, learning_rate=2**-7)
    trainer, other = Trainer(config), Trainer(config)
    weights = list(other.model.parameters())
    shared = {"lr": 2**-7, "weight_decay": 0.01, "foreach": False}
    if optimizer == "sgd":
        reference = torch.optim.SGD(weights, momentum=0.8, **shared)
    else:
        plain = torch.optim.Adam if optimizer == "adam" else torch.optim.AdamW
        reference = plain(weights, betas=(0.7, 0.9), eps=1e-4, **shared)
    for _ in range(4):
        result = trainer.train_step()
        reference.zero_grad()
        other.model.loss(other.next_batch(), 0.0).backward()
        norm = torch.nn.utils.clip_grad_norm_(weights, clip or torch.inf)
        reference.step()
        assert result.grad_norm == pytest.approx(norm.item(), rel=1e-5)
    assert clip != 0.5 or result.grad_norm > clip
    for one, two in zip(trainer.model.parameters(), weights, strict=True):
        assert torch.allclose(one, two, atol=1e-5)


# The average of the weights


@pytest.fixture
def averaged(small_run):
    return small_run.replace(weight_averaging=True, max_steps=12)


def test_shares_of_the_steps_in_the_average_grow_polynomially(averaged):
    trainer = Trainer(averaged)
    history = []
    for _ in range(10):
        trainer.train_step()
        history.append(trainer.model.output_proj.weight.detach().double().clone())
    shares = [math.comb(step + 3, 4) for step in range(1, 11)]
    expected = sum(share * weight for share, weight in zip(shares, history, strict=True))
    torch.testing.assert_close(
        trainer.eval_model.output_proj.weight.double(), expected / sum(shares), atol=1e-6, rtol=1e-5
    )


def test_training_is_the_same_and_scores_are_those_of_the_average(averaged):
    trainer, plain = Trainer(averaged), Trainer(averaged.replace(weight_averaging=False))
    assert [each.loss for each in trainer] == [each.loss for each in plain]
    assert plain.eval_model is plain.model
    scores = trainer.evaluate(64)
    held_out = trainer._held_out[64]
    assert scores == evaluate(trainer.eval_model, held_out)
    assert scores != evaluate(trainer.model, held_out)


def test_diverged_step_leaves_the_average_unchanged(averaged):
    trainer = Trainer(averaged)
    trainer.train_step()
    before = copy.deepcopy(trainer.eval_model.state_dict())
    with torch.no_grad():
        trainer.model.output_proj.bias[0] = torch.inf
    with pytest.raises(TrainingDivergedError):
        trainer.train_step()
    for name, weight in trainer.eval_model.state_dict().items():
        assert torch.equal(weight, before[name])
