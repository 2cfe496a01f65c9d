"""The interface of a trainable model for Trainer, evaluation and checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from playground.generation import check_lengths as check_lengths
from playground.generation import eval_mode as eval_mode
from playground.generation import generate_tokens as generate_tokens
from playground.models.config import BaseConfig
from playground.models.transformer import AttentionWeights
from playground.tasks import PAD
from playground.tasks.task import Batch


class Seq2SeqModel(nn.Module, ABC):
    """A model with a loss, generation and attention weights, independent of runs and pages."""

    config: BaseConfig
    saveable = True  # False for a lesson's copy with a bug, which no checkpoint may store

    @abstractmethod
    def loss(self, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """Return the mean loss over the tokens of the examples whose loss weight is not zero."""

    @abstractmethod
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        """Generate targets (BT) with EOS and PAD, each token from those generated before it."""

    @abstractmethod
    def is_exact_match(self, batch: Batch) -> Tensor:
        """Return whether `generate` generates exactly the target of each example (B booleans).

        The implementation may use a faster method than `generate`.
        """

    def exact_match_and_loss(
        self, batch: Batch, label_smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor | None]:
        """Return `is_exact_match`, and the loss of each target, summed over its tokens (B).

        The loss is None if the pass that checks the target does not compute it.
        """
        return self.is_exact_match(batch), None

    @abstractmethod
    def attention_weights(self, batch: Batch) -> AttentionWeights:
        """Return the attention weights of a teacher-forced pass; absent kinds stay empty."""

    @abstractmethod
    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the query tokens (BQ) and the key tokens (BM) of each kind of attention.

        The kinds are those of `attention_weights` ("encoder", "decoder", "cross"). The result is
        empty for an architecture without attention.
        """


class TeacherForcedModel(Seq2SeqModel):
    """A model with logits for each target token; an autoregressive one uses teacher forcing."""

    @abstractmethod
    def logits(self, batch: Batch) -> Tensor:
        """Return the logits (BTV) for each label."""

    def loss(self, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        return masked_cross_entropy(self.logits(batch), batch, label_smoothing)

    def next_token(self, source_BS: Tensor, max_tokens: int) -> Callable[[Tensor], Tensor]:
        """Return the function that `generate_tokens` calls; a parallel model has none."""
        raise NotImplementedError

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        check_lengths(self.config, source_BS, max_tokens)
        with eval_mode(self):
            return generate_tokens(self.next_token(source_BS, max_tokens), source_BS, max_tokens)

    def is_exact_match(self, batch: Batch) -> Tensor:
        return self.exact_match_and_loss(batch)[0]

    @torch.no_grad()
    def exact_match_and_loss(
        self, batch: Batch, label_smoothing: float = 0.0
    ) -> tuple[Tensor, Tensor | None]:
        """Compare the most likely tokens of one teacher-forced pass with the target.

        By induction on the prefix: if every token is the most likely one after the correct prefix,
        greedy decoding generates that prefix, and so the same tokens. If some token is not, greedy
        decoding deviates from the target there. This holds only for a causal decoder.
        """
        with eval_mode(self):
            logits_BTV = self.logits(batch)
        loss_BT = token_losses(logits_BTV, batch, label_smoothing)
        return exact_match_mask(logits_BTV, batch), (loss_BT * (batch.labels_BT != PAD)).sum(1)


def split_into_chunks(config: BaseConfig, batch: Batch) -> tuple[Tensor, ...]:
    """Split the indices of a batch into chunks that fit without gradients.

    Source and target both count for the size of an example.
    """
    width = config.sequence_length(batch.source_BS.shape[1], batch.target_BT.shape[1])
    return torch.arange(len(batch.source_BS)).split(config.max_batch_size(width))


def masked_cross_entropy(logits_BTV: Tensor, batch: Batch, label_smoothing: float) -> Tensor:
    """Return the mean cross-entropy of the labels over the tokens of training examples.

    Label smoothing (Szegedy et al. 2016; section 5.4 in Vaswani et al. 2017) spreads probability
    over the whole vocabulary, including PAD and SOS. `evaluation.annotated_transformer_loss`
    leaves PAD out, as The Annotated Transformer does.
    """
    loss_BT = token_losses(logits_BTV, batch, label_smoothing)
    weight_BT = (batch.labels_BT != PAD) * batch.loss_weight_B[:, None]
    return (loss_BT * weight_BT).sum() / weight_BT.sum().clamp(min=1)


def token_losses(logits_BTV: Tensor, batch: Batch, label_smoothing: float) -> Tensor:
    """Return the cross-entropy of each label (BT), also at padding."""
    return F.cross_entropy(
        logits_BTV.transpose(1, 2),
        batch.labels_BT,
        reduction="none",
        label_smoothing=label_smoothing,
    )


def exact_match_mask(logits_BTV: Tensor, batch: Batch) -> Tensor:
    """Return whether the most likely tokens equal the target, for each example (B booleans)."""
    return ((logits_BTV.argmax(-1) == batch.labels_BT) | (batch.labels_BT == PAD)).all(1)
