"""Pretrained models as sequence-to-sequence models, which the Trainer trains on a task.

The model gets the prompt of the benchmark without few-shot examples, and learns the target:

    Input: 3 1 4
    Output: 4 1 3

A table maps each token of the task to one token of the model, so training tokenizes no text.

Shapes: B batch, S source, T target, P tokens of a prompt, W tokens of a sequence, V vocabulary
of the model, Y vocabulary of the task.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.architectures.seq2seq_model import Seq2SeqModel, eval_mode, generate_tokens
from playground.common import messages
from playground.errors import UserError
from playground.models.config import AttentionConfig
from playground.models.config_fields import config_field
from playground.models.transformer import AttentionWeights
from playground.tasks import EOS, PAD, SOS
from playground.tasks.task import Batch, Task

from ..loading.model_files import CAUSAL, MASKED
from ..prompts import Example, few_shot_prompt, masked_prompt
from ..tokens import check_symbols, max_input_tokens

MAX_LOGITS_PER_BATCH = 16_000_000  # maximum number of logits in one evaluation batch: 64 MB


@dataclass(frozen=True)
class PretrainedSeq2SeqConfig(AttentionConfig):
    """Sizes of a pretrained model, and the number of prompt tokens besides source and target."""

    prompt_tokens: int = config_field(
        0, "Tokens of a prompt besides source and target.", low=0, high=1000
    )
    parameters: int = config_field(1, "Trainable parameters.", low=1, high=10**12)
    reads_all: bool = config_field(
        False, "Compute logits at all positions, not only at those of the target."
    )

    @classmethod
    def of(
        cls, config: Any, positions: int, prompt_tokens: int, parameters: int, reads_all: bool
    ) -> PretrainedSeq2SeqConfig:
        """Read the sizes from the `config` of transformers."""
        d_ff = (
            getattr(config, "intermediate_size", None)
            or getattr(config, "n_inner", None)
            or 4 * config.hidden_size
        )
        return cls(
            d_model=config.hidden_size,
            n_heads=config.num_attention_heads,
            n_layers=config.num_hidden_layers,
            d_ff=d_ff,
            source_vocab_size=config.vocab_size,
            target_vocab_size=config.vocab_size,
            max_positions=positions,
            prompt_tokens=prompt_tokens,
            parameters=parameters,
            reads_all=reads_all,
        )

    def sequence_length(self, source: int, target: int) -> int:
        return self.prompt_tokens + source + target

    def max_batch_size(self, length: int) -> int:
        return max(
            1,
            min(
                super().max_batch_size(length),
                MAX_LOGITS_PER_BATCH // (length * self.target_vocab_size),
            ),
        )

    def training_bytes(self, rows: int, source: int, target: int) -> dict[str, int]:
        """Estimate the bytes that training with `rows` sequences per step takes, by purpose.

        A parameter has four bytes, and its gradient and Adam's two moments have as many.
        Activations are the tensors stored for the backward pass, including the logits of the
        whole vocabulary.
        """
        width = self.sequence_length(source, target)
        stored = (
            self.n_layers * (30 * self.d_model + 5 * self.d_ff + 6 * self.n_heads * width) * width
        )
        logits = 4 * self.target_vocab_size * (width if self.reads_all else target)
        return {
            "weights": 4 * self.parameters,
            "gradients": 4 * self.parameters,
            "optimizer_state": 8 * self.parameters,
            "activations": 4 * rows * (stored + logits),
        }


@dataclass(frozen=True)
class PromptTemplate:
    """A prompt as token ids: the parts around source and target, and the symbols."""

    prefix: list[int]
    separator: list[int]
    suffix: list[int]
    symbols: list[int]

    def __len__(self) -> int:
        return len(self.prefix) + len(self.separator) + len(self.suffix)

    @classmethod
    def of(cls, tokenizer: Any, symbols: Sequence[str], name: str, kind: str) -> PromptTemplate:
        """Split the prompt into its parts, and check that joined they equal a tokenized prompt.

        Raises:
            UserError: if a symbol is not a single token or holds a special token, or if the tokens
                depend on their neighbors.
        """
        check_symbols(tokenizer, symbols, name)

        def encode(text: str) -> list[int]:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
            return ids

        symbol_ids: list[int] = []
        for symbol in symbols:
            ids = encode(f" {symbol}")
            if len(ids) != 1 or ids[0] == tokenizer.unk_token_id or ids[0] in symbol_ids:
                raise UserError(
                    f"{name} has no single token for the symbol {symbol}, so it cannot be trained "
                    "on this task; choose a checkpoint whose task has digits only, or another model"
                )
            symbol_ids += ids
        item = Example(tuple(symbols), tuple(reversed(symbols)))
        end = "\n" if kind == CAUSAL else ""
        text = (
            f"{few_shot_prompt(item, [])} {item.target_text}{end}"
            if kind == CAUSAL
            else masked_prompt(item, [], tokenizer.mask_token)
        )
        target = symbol_ids[::-1] if kind == CAUSAL else [tokenizer.mask_token_id] * len(symbol_ids)
        prefix, separator, after = encode("Input:"), encode("\nOutput:"), encode(end)
        parts = [*prefix, *symbol_ids, *separator, *target, *after]
        ids_of_prompt: list[int] = tokenizer(text)["input_ids"]
        starts = [
            start
            for start in range(len(ids_of_prompt) - len(parts) + 1)
            if ids_of_prompt[start : start + len(parts)] == parts
        ]
        if not starts or (kind == CAUSAL and len(after) != 1):
            raise UserError(
                f"{name} has a tokenizer that merges symbols with their neighbors; choose "
                "another model"
            )
        special, ends = ids_of_prompt[: starts[0]], ids_of_prompt[starts[0] + len(parts) :]
        return cls(special + prefix, separator, after if kind == CAUSAL else ends, symbol_ids)


class PretrainedSeq2Seq(Seq2SeqModel):
    """The common part: the maps between the two vocabularies, and vectorized packing of sequences.

    Tokens of the model that the task does not have map to SOS, which no target contains.
    """

    config: PretrainedSeq2SeqConfig
    ids_Y: Tensor
    to_task_ids_V: Tensor
    prefix_P: Tensor
    separator_P: Tensor
    suffix_P: Tensor
    kind = CAUSAL
    first_label = EOS  # the smallest id of a task that the model predicts

    def __init__(self, model: Any, tokenizer: Any, task: Task, name: str) -> None:
        super().__init__()
        template = PromptTemplate.of(tokenizer, task.vocabulary.symbols, name, self.kind)
        parameters = sum(each.numel() for each in model.parameters())
        self.config = PretrainedSeq2SeqConfig.of(
            model.config,
            max_input_tokens(model, tokenizer),
            len(template),
            parameters,
            self.kind != CAUSAL,
        )
        self.model, self.task = model, task
        self._positions = {"position_ids"} & set(inspect.signature(model.forward).parameters)
        end = template.suffix[0] if self.kind == CAUSAL else 0
        tables = {
            "ids_Y": torch.tensor([0, 0, end, *template.symbols]),
            "to_task_ids_V": torch.full((model.config.vocab_size,), SOS),
            "prefix_P": torch.tensor(template.prefix),
            "separator_P": torch.tensor(template.separator),
            "suffix_P": torch.tensor(template.suffix),
        }
        tables["to_task_ids_V"][template.symbols] = (
            torch.arange(len(template.symbols)) + len(tables["ids_Y"]) - len(template.symbols)
        )
        if self.kind == CAUSAL:
            tables["to_task_ids_V"][end] = EOS
        for key, table in tables.items():
            self.register_buffer(key, table.long(), persistent=False)
        self.train()

    def ensure_fits_context(self, max_length: int) -> None:
        """Check that the longest source and its target fit into the model's positions.

        Raises:
            UserError: if they do not fit.
        """
        width = self.config.sequence_length(max_length, self.task.max_target_length(max_length))
        if width > self.config.max_positions:
            raise UserError(
                f"sequences of {max_length} take {width:,} tokens with their targets, and this "
                f"model has {self.config.max_positions:,} positions; choose a checkpoint of "
                "shorter sequences"
            )

    def _prompt(self, source_BS: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the parts of the prompt: the model's tokens, and True where they are not
        padding."""
        source_BS = source_BS[:, :-1]  # the last column is EOS or padding
        return [
            expand_tokens(self.prefix_P, source_BS),
            (self.ids_Y[source_BS], source_BS > EOS),
            expand_tokens(self.separator_P, source_BS),
        ]

    @abstractmethod
    def _logits(self, batch: Batch) -> Tensor:
        """Return the logits (BTV) of the labels; those of padding are arbitrary."""

    def loss(self, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        loss_BT = F.cross_entropy(
            self._logits(batch).float().transpose(1, 2),
            self.ids_Y[batch.labels_BT],
            reduction="none",
            label_smoothing=label_smoothing,
        )
        weight_BT = (batch.labels_BT >= self.first_label) * batch.loss_weight_B[:, None]
        return (loss_BT * weight_BT).sum() / weight_BT.sum().clamp(min=1)

    @torch.no_grad()
    def is_exact_match(self, batch: Batch) -> Tensor:
        labels_BT = batch.labels_BT
        with eval_mode(self):
            choice_BT = self._logits(batch).argmax(-1)
        return ((choice_BT == self.ids_Y[labels_BT]) | (labels_BT < self.first_label)).all(1)

    # The Trainer reads no attention.

    def attention_weights(self, batch: Batch) -> AttentionWeights:
        return AttentionWeights()

    def attention_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        return {}


class CausalSeq2Seq(PretrainedSeq2Seq):
    """A causal language model that generates the target up to the end of the line.

    Prompts are left-padded, so that all targets begin in the same column.
    """

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        ids_BW, mask_BP = pack_rows(self._prompt(source_BS), left=True)
        past = None

        def next_token(_: Tensor) -> Tensor:
            nonlocal ids_BW, mask_BP, past
            inputs = self._decoder_inputs(ids_BW, mask_BP)
            result = self.model(**inputs, past_key_values=past, use_cache=True, logits_to_keep=1)
            best_B, past = result.logits[:, -1].argmax(-1), result.past_key_values
            ids_BW, mask_BP = best_B[:, None], F.pad(mask_BP, (0, 1), value=True)
            return self.to_task_ids_V[best_B]

        with eval_mode(self):
            return generate_tokens(next_token, source_BS, max_tokens)

    def _row(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the prompt and the target without its last token, which is only predicted."""
        ids_BP, mask_BP = pack_rows(self._prompt(batch.source_BS), left=True)
        target_BT = batch.labels_BT[:, :-1]
        return torch.cat((ids_BP, self.ids_Y[target_BT]), 1), torch.cat(
            (mask_BP, target_BT != PAD), 1
        )

    def _logits(self, batch: Batch) -> Tensor:
        n_tokens = batch.labels_BT.shape[1]
        result = self.model(
            **self._decoder_inputs(*self._row(batch)), use_cache=False, logits_to_keep=n_tokens
        )
        logits_BTV: Tensor = result.logits
        return logits_BTV

    def _decoder_inputs(self, ids_BW: Tensor, mask_BP: Tensor) -> dict[str, Tensor]:
        """Return the arguments of the model: the new tokens, and the mask of all tokens so far."""
        inputs = {"input_ids": ids_BW, "attention_mask": mask_BP.long()}
        if self._positions:
            inputs["position_ids"] = (mask_BP.cumsum(1) - 1).clamp(min=0)[:, -ids_BW.shape[1] :]
        return inputs


class MaskedSeq2Seq(PretrainedSeq2Seq):
    """A masked language model: predicts all tokens of the target at once.

    As in the benchmark, the length of the target is known, so its EOS is always correct and has
    no loss.
    """

    kind = MASKED
    first_label = EOS + 1

    def __init__(self, model: Any, tokenizer: Any, task: Task, name: str) -> None:
        if tokenizer.mask_token is None:
            raise UserError(messages.missing_mask_token(name))
        self._mask = int(tokenizer.mask_token_id)
        super().__init__(model, tokenizer, task, name)

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        _, lengths_B = self.task.target(source_BS[:, :-1], (source_BS > EOS).sum(1))
        position_T = torch.arange(max_tokens, device=source_BS.device)
        slots_BT = position_T < lengths_B[:, None]
        with eval_mode(self):
            target_BT = self.to_task_ids_V[self._slot_logits(source_BS, slots_BT).argmax(-1)]
        eos_BT = torch.where(position_T == lengths_B[:, None], EOS, PAD)
        return torch.where(slots_BT, target_BT, eos_BT)

    def _row(self, source_BS: Tensor, slots_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Return the prompt with a mask at each position of the target."""
        masks_BT = torch.full(slots_BT.shape, self._mask, device=source_BS.device)
        return pack_rows(
            [
                *self._prompt(source_BS),
                (masks_BT, slots_BT),
                expand_tokens(self.suffix_P, source_BS),
            ],
            left=False,
        )

    def _logits(self, batch: Batch) -> Tensor:
        return self._slot_logits(batch.source_BS, batch.labels_BT >= self.first_label)

    def _slot_logits(self, source_BS: Tensor, slots_BT: Tensor) -> Tensor:
        """Return the logits (BTV) of the target positions; padding gets arbitrary ones."""
        ids_BW, mask_BW = self._row(source_BS, slots_BT)
        logits_BWV: Tensor = self.model(input_ids=ids_BW, attention_mask=mask_BW.long()).logits
        first_B = mask_BW.sum(1) - len(self.suffix_P) - slots_BT.sum(1)
        position_BT = (
            first_B[:, None] + torch.arange(slots_BT.shape[1], device=source_BS.device)
        ).clamp(max=ids_BW.shape[1] - 1)
        return logits_BWV[
            torch.arange(len(source_BS), device=source_BS.device)[:, None], position_BT
        ]


def expand_tokens(ids_P: Tensor, like_BS: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat the same tokens for every sequence of a batch."""
    ids_BP = ids_P.expand(len(like_BS), -1)
    return ids_BP, torch.ones_like(ids_BP, dtype=torch.bool)


def pack_rows(parts: list[tuple[Tensor, Tensor]], left: bool) -> tuple[Tensor, Tensor]:
    """Join parts without gaps (BW), padded on the left or on the right; return the mask too."""
    ids_BW = torch.cat([ids for ids, _ in parts], 1)
    mask_BW = torch.cat([mask for _, mask in parts], 1)
    order_BW = (mask_BW if left else ~mask_BW).int().argsort(dim=1, stable=True)
    return ids_BW.gather(1, order_BW), mask_BW.gather(1, order_BW)
