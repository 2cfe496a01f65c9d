"""Pretrained models as sequence-to-sequence models, which the Trainer trains on a task.

The model gets the prompt of the benchmark without few-shot examples, and learns the target:

    Input: 3 1 4
    Output: 4 1 3

A table maps each symbol of the task to its tokens of the model, so training tokenizes no text. For
most tokenizers a digit is one token, " 3"; those of Llama 3 and Qwen split it into a space and "3".

Shapes: B batch, S source, T target, K tokens of a symbol, P tokens of a prompt, L tokens of a
target, W tokens of a sequence, V vocabulary of the model, Y vocabulary of the task.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.architectures.seq2seq_model import Seq2SeqModel, eval_mode
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
        0, "Tokens of a prompt besides source and target.", bounds=(0, 1000)
    )
    tokens_per_symbol: int = config_field(1, "Tokens of the longest symbol.", bounds=(1, 1000))
    parameters: int = config_field(1, "Trainable parameters.", bounds=(1, 10**12))
    reads_all: bool = config_field(
        False, "Compute logits at all positions, not only at those of the target."
    )

    @classmethod
    def of(
        cls, config: Any, positions: int, template: PromptTemplate, parameters: int, reads_all: bool
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
            prompt_tokens=len(template),
            tokens_per_symbol=template.tokens_per_symbol,
            parameters=parameters,
            reads_all=reads_all,
        )

    def sequence_length(self, source: int, target: int) -> int:
        return self.prompt_tokens + self.tokens_per_symbol * (source + target)

    def ensure_fits_context(self, source: int, target: int) -> None:
        """Raise UserError unless the longest source and its target fit into the positions."""
        width = self.sequence_length(source, target)
        if width > self.max_positions:
            raise UserError(
                f"sequences of {source} take {width:,} tokens with their targets, and this model "
                f"has {self.max_positions:,} positions; choose a checkpoint of shorter sequences"
            )

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
        labels = width if self.reads_all else self.tokens_per_symbol * target
        logits = 4 * self.target_vocab_size * labels
        return {
            "weights": 4 * self.parameters,
            "gradients": 4 * self.parameters,
            "optimizer_state": 8 * self.parameters,
            "activations": 4 * rows * (stored + logits),
        }


@dataclass(frozen=True)
class PromptTemplate:
    """A prompt as token ids: the parts around source and target, and each symbol's tokens."""

    prefix: list[int]
    separator: list[int]
    suffix: list[int]
    symbols: list[list[int]]

    def __len__(self) -> int:
        return len(self.prefix) + len(self.separator) + len(self.suffix)

    @property
    def tokens_per_symbol(self) -> int:
        return max(map(len, self.symbols))

    @classmethod
    def of(cls, tokenizer: Any, symbols: Sequence[str], name: str, kind: str) -> PromptTemplate:
        """Split the prompt into its parts, and check that joined they equal a tokenized prompt.

        A part's tokens are those that it adds to the text before it. So it does not matter whether
        a space belongs to the symbol's token, is one by itself, or has none. Raises UserError if
        the tokens of the symbols cannot be distinguished, or depend on their neighbors.
        """
        check_symbols(tokenizer, symbols, name)
        if kind == MASKED and tokenizer.mask_token is None:
            raise UserError(messages.missing_mask_token(name))
        problem = UserError(
            f"{name} has a tokenizer that merges symbols with their neighbors; choose another model"
        )

        def encode(text: str) -> list[int]:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
            return ids

        def added(before: str, text: str) -> list[int]:
            start, ids = encode(before), encode(before + text)
            if ids[: len(start)] != start:
                raise problem
            return ids[len(start) :]

        prefix, symbol_ids = encode("Input:"), [added("Input:", f" {symbol}") for symbol in symbols]
        for symbol, ids in zip(symbols, symbol_ids, strict=True):
            if not ids or tokenizer.unk_token_id in ids or symbol_ids.count(ids) > 1:
                raise UserError(
                    f"{name} cannot distinguish the symbol {symbol} from others, so it cannot be "
                    "trained on this task; choose a checkpoint whose task has digits only, or "
                    "another model"
                )
            if kind == MASKED and len(ids) > 1:
                raise UserError(
                    f"{name} has no single token for the symbol {symbol}, so it cannot predict it "
                    "at one masked position; choose a checkpoint whose task has digits only, or a "
                    "causal model"
                )
        item = Example(tuple(symbols), tuple(reversed(symbols)))
        source = f"Input: {item.source_text}"
        separator = added(source, "\nOutput:")
        if kind == MASKED:
            text, after = masked_prompt(item, [], tokenizer.mask_token), []
            target = [[tokenizer.mask_token_id]] * len(symbols)
        else:
            text = f"{few_shot_prompt(item, [])} {item.target_text}"
            after, target = added(text, "\n"), symbol_ids[::-1]
            text += "\n"
        parts = [*prefix, *chain(*symbol_ids), *separator, *chain(*target), *after]
        ids_of_prompt: list[int] = tokenizer(text)["input_ids"]
        starts = [
            start
            for start in range(len(ids_of_prompt) - len(parts) + 1)
            if ids_of_prompt[start : start + len(parts)] == parts
        ]
        if not starts or (kind != MASKED and len(after) != 1):
            raise problem
        special, ends = ids_of_prompt[: starts[0]], ids_of_prompt[starts[0] + len(parts) :]
        return cls(special + prefix, separator, ends if kind == MASKED else after, symbol_ids)


class PretrainedSeq2Seq(Seq2SeqModel):
    """The common part: the tokens of the symbols, and vectorized packing of sequences."""

    config: PretrainedSeq2SeqConfig
    ids_YK: Tensor
    is_token_YK: Tensor
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
            max_input_tokens(model.config, tokenizer),
            template,
            parameters,
            self.kind == MASKED,
        )
        self.model, self.task = model, task
        self._positions = {"position_ids"} & set(inspect.signature(model.forward).parameters)
        # by id of the task: PAD and SOS have no tokens, and EOS is the end of the line
        tokens: list[list[int]] = [[], [], template.suffix[:1], *template.symbols]
        self._symbol_by_tokens = {
            tuple(ids): symbol for symbol, ids in enumerate(tokens) if symbol > EOS
        }
        width = template.tokens_per_symbol
        tables = {
            "ids_YK": torch.tensor([ids + [0] * (width - len(ids)) for ids in tokens]),
            "prefix_P": torch.tensor(template.prefix).long(),
            "separator_P": torch.tensor(template.separator).long(),
            "suffix_P": torch.tensor(template.suffix).long(),
            "is_token_YK": torch.tensor([[k < len(ids) for k in range(width)] for ids in tokens]),
        }
        for key, table in tables.items():
            self.register_buffer(key, table, persistent=False)
        self.train()

    def _prompt(self, source_BS: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the parts of the prompt: tokens, and True where they are no padding."""
        source_BS = source_BS[:, :-1]  # the last column is EOS or padding
        return [
            expand_tokens(self.prefix_P, source_BS),
            self._tokens_of(source_BS, EOS + 1),
            expand_tokens(self.separator_P, source_BS),
        ]

    def _tokens_of(self, symbols_BT: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """Return the tokens of the symbols from id `first` on, and True where there is one."""
        is_used_BTK = self.is_token_YK[symbols_BT] & (symbols_BT >= first)[..., None]
        return self.ids_YK[symbols_BT].flatten(1), is_used_BTK.flatten(1)

    def _labels(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the tokens to predict (BL), padded on the right, and their mask."""
        return pack_rows([self._tokens_of(batch.labels_BT, self.first_label)], left=False)

    @abstractmethod
    def _logits(self, source_BS: Tensor, labels_BL: Tensor, is_label_BL: Tensor) -> Tensor:
        """Return the logits (BLV) of the labels; those of padding are arbitrary."""

    def loss(self, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        labels_BL, is_label_BL = self._labels(batch)
        # vocabulary last: along another dimension, the sum of 49,152 terms is off by 0.0002
        logits_BLV = self._logits(batch.source_BS, labels_BL, is_label_BL).float()
        loss_BL = F.cross_entropy(
            logits_BLV.flatten(0, 1),
            labels_BL.flatten(),
            reduction="none",
            label_smoothing=label_smoothing,
        ).view_as(labels_BL)
        weight_BL = is_label_BL * batch.loss_weight_B[:, None]
        return (loss_BL * weight_BL).sum() / weight_BL.sum().clamp(min=1)

    @torch.no_grad()
    def is_exact_match(self, batch: Batch) -> Tensor:
        labels_BL, is_label_BL = self._labels(batch)
        with eval_mode(self):
            choice_BL = self._logits(batch.source_BS, labels_BL, is_label_BL).argmax(-1)
        return ((choice_BL == labels_BL) | ~is_label_BL).all(1)

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
        past, end = None, self.ids_YK[EOS, 0]
        columns: list[Tensor] = []
        has_ended_B = torch.zeros(len(source_BS), dtype=torch.bool, device=source_BS.device)
        with eval_mode(self):
            while len(columns) < max_tokens * self.config.tokens_per_symbol:
                inputs = self._decoder_inputs(ids_BW, mask_BP)
                result = self.model(
                    **inputs, past_key_values=past, use_cache=True, logits_to_keep=1
                )
                best_B, past = result.logits[:, -1].argmax(-1), result.past_key_values
                columns.append(best_B)
                has_ended_B |= best_B == end
                if bool(has_ended_B.all()):
                    break
                ids_BW, mask_BP = best_B[:, None], F.pad(mask_BP, (0, 1), value=True)
        rows = [self._read_symbols(row, max_tokens) for row in torch.stack(columns, 1).tolist()]
        return torch.tensor(rows, device=source_BS.device)

    def _read_symbols(self, tokens: list[int], length: int) -> list[int]:
        """Return the symbols of a row of tokens up to EOS, padded or cut to `length`.

        A token that begins no symbol becomes SOS, which no target contains.
        """
        symbols: list[int] = []
        end, start = self.ids_YK[EOS, 0], 0
        while start < len(tokens) and tokens[start] != end:
            symbol, start = next(
                (
                    (self._symbol_by_tokens[part], start + width)
                    for width in range(self.config.tokens_per_symbol, 0, -1)
                    if (part := tuple(tokens[start : start + width])) in self._symbol_by_tokens
                ),
                (SOS, start + 1),
            )
            symbols.append(symbol)
        symbols += [EOS] * (start < len(tokens)) + [PAD] * length
        return symbols[:length]

    def _row(
        self, source_BS: Tensor, labels_BL: Tensor, is_label_BL: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the prompt and the target without its last token, which is only predicted."""
        ids_BP, mask_BP = pack_rows(self._prompt(source_BS), left=True)
        return torch.cat((ids_BP, labels_BL[:, :-1]), 1), torch.cat(
            (mask_BP, is_label_BL[:, :-1]), 1
        )

    def _logits(self, source_BS: Tensor, labels_BL: Tensor, is_label_BL: Tensor) -> Tensor:
        inputs = self._decoder_inputs(*self._row(source_BS, labels_BL, is_label_BL))
        result = self.model(**inputs, use_cache=False, logits_to_keep=labels_BL.shape[1])
        logits_BLV: Tensor = result.logits
        return logits_BLV

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
        super().__init__(model, tokenizer, task, name)
        self._mask = int(tokenizer.mask_token_id)

    @torch.no_grad()
    def generate(self, source_BS: Tensor, max_tokens: int) -> Tensor:
        _, lengths_B = self.task.target(source_BS[:, :-1], (source_BS > EOS).sum(1))
        position_T = torch.arange(max_tokens, device=source_BS.device)
        slots_BT = position_T < lengths_B[:, None]
        with eval_mode(self):
            best_BT = self._logits(source_BS, slots_BT, slots_BT).argmax(-1)
        rows = [
            [self._symbol_by_tokens.get((token,), SOS) for token in row] for row in best_BT.tolist()
        ]
        target_BT = torch.tensor(rows, device=source_BS.device)
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

    def _logits(self, source_BS: Tensor, labels_BL: Tensor, is_label_BL: Tensor) -> Tensor:
        ids_BW, mask_BW = self._row(source_BS, is_label_BL)
        logits_BWV: Tensor = self.model(input_ids=ids_BW, attention_mask=mask_BW.long()).logits
        first_B = mask_BW.sum(1) - len(self.suffix_P) - is_label_BL.sum(1)
        position_BL = (
            first_B[:, None] + torch.arange(is_label_BL.shape[1], device=source_BS.device)
        ).clamp(max=ids_BW.shape[1] - 1)
        return logits_BWV[
            torch.arange(len(source_BS), device=source_BS.device)[:, None], position_BL
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
