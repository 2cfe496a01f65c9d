"""Prompts as tokens, for tokenizers that split digits and spaces in different ways."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from playground.errors import UserError
from playground.pretrained.finetuning.seq2seq import CausalSeq2Seq, PromptTemplate
from playground.pretrained.loading.model_files import CAUSAL, MASKED
from playground.pretrained.prompts import Example, few_shot_prompt
from playground.tasks import EOS, load_task
from playground.tasks.task import batch_of_targets

TASK = load_task("reverse", 20)  # digits and letters
SYMBOLS = TASK.vocabulary.symbols
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
# letters and a digit with their space are tokens, as for GPT-2; so is a line break
WITH_SPACE = [f"Ġ{symbol}" for symbol in SYMBOLS]


def build_tokenizer(kind):
    """Build a tokenizer of one kind: how it treats the space before a symbol."""
    if kind == "metaspace":  # Llama 2 and Mistral: a space is a token by itself
        names = ["▁", "\n", ":", *SYMBOLS, *"InputOput"]
        merges = []
        splits = [pre_tokenizers.Metaspace(), pre_tokenizers.Digits(individual_digits=True)]
    else:
        names, merges = [*BYTES], []
        if kind != "bytes":  # of "bytes", every character is a token
            names += [name for name in WITH_SPACE if kind == "gpt2" or not name[1].isdigit()]
            merges = [tuple(name) for name in names[len(BYTES) :]]
        splits = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
        if kind == "digits":  # Llama 3, Qwen and SmolLM
            splits.insert(0, pre_tokenizers.Digits(individual_digits=True))
    names = ["<s>", "<unk>", *dict.fromkeys(names)]
    model = models.BPE({name: i for i, name in enumerate(names)}, merges, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>", model_max_length=512
    )


TOKENS_PER_SYMBOL = {"gpt2": {1}, "digits": {1, 2}, "bytes": {2}, "metaspace": {2}}


@pytest.fixture(scope="module", params=TOKENS_PER_SYMBOL)
def model(request):
    tokenizer = build_tokenizer(request.param)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = CausalSeq2Seq(LlamaForCausalLM(config), tokenizer, TASK, request.param)
    widths = model.is_token_YK[EOS + 1 :].sum(1).tolist()
    assert set(widths) == TOKENS_PER_SYMBOL[request.param]
    return model.eval(), tokenizer


targets = st.lists(st.sampled_from(SYMBOLS), min_size=1, max_size=6).map(tuple)


@given(targets, targets)
def test_prompts_and_labels_are_the_tokens_of_the_text(model, source, target):
    model, tokenizer = model
    encode = TASK.vocabulary.encode
    batch = batch_of_targets(TASK, encode(" ".join(source)), [encode(" ".join(target))])
    labels_BL, is_label_BL = model._labels(batch)
    row_BW, mask_BW = model._row(batch.source_BS, labels_BL, is_label_BL)
    prompt = few_shot_prompt(Example(source, target), [])
    ids = tokenizer(f"{prompt} {' '.join(target)}\n")["input_ids"]
    labels = labels_BL[is_label_BL].tolist()
    assert row_BW[mask_BW].tolist() in (ids, ids[:-1])  # a padded row includes the end
    assert labels == ids[-len(labels) :]
    assert model._read_symbols(labels, len(target) + 1) == batch.labels_BT[0].tolist()


def test_unknown_tokens_and_missing_ends_match_no_target(model):
    model, _ = model
    one = model.ids_YK[EOS + 1][model.is_token_YK[EOS + 1]].tolist()
    first = EOS + 1
    assert model._read_symbols([*one, 0, *one], 4) == [first, 1, first, 0]  # SOS; no EOS
    assert model._read_symbols(one * 5, 3) == [first] * 3


def test_loss_and_exact_match_use_all_tokens_of_a_symbol(model):
    model, _ = model
    sources = torch.tensor([[3, 4, 5, EOS], [6, 7, EOS, 0]])
    batch = batch_of_targets(TASK, [3, 4, 5], [[5, 4, 3], [7, 8, 9]])
    generated_BT = model.generate(batch.source_BS, 4)
    assert torch.equal((generated_BT == batch.labels_BT).all(1), model.is_exact_match(batch))
    for row, source_S in enumerate(sources):
        alone = model.generate(source_S[source_S > 0][None], 4)
        assert torch.equal(model.generate(sources, 4)[row], alone[0])


def test_indistinguishable_symbols_are_reported():
    tokenizer = build_tokenizer("digits")
    tokenizer.mask_token = "<s>"
    with pytest.raises(UserError, match="stub has no single token for the symbol 0"):
        PromptTemplate.of(tokenizer, SYMBOLS, "stub", MASKED)
    with pytest.raises(UserError, match="stub has no mask token"):
        PromptTemplate.of(build_tokenizer("gpt2"), SYMBOLS, "stub", MASKED)
    lower = build_tokenizer("gpt2")
    lower.backend_tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(UserError, match="stub cannot distinguish the symbol A from others"):
        PromptTemplate.of(lower, ["A", "a"], "stub", CAUSAL)
