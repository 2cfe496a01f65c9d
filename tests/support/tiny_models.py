"""Two tiny models with tokenizers of their own, trained here on a small grammar: fixtures, so that tests run the real pipelines on
weights that mean something. They are no pretrained BERT or GPT-2 and know nothing but the grammar below.

    python -m tests.support.tiny_models FOLDER      makes FOLDER/tiny-gpt2 and FOLDER/tiny-bert

The grammar: capitals, counting in words and in digits, a few plain sentences, and reversed digits ("Input: 3 1 4", "Output: 4 1 3").
What they must be right about is in `CHECKS`; a fixture that is not raises.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM, BertTokenizer, GPT2Config, GPT2LMHeadModel, GPT2Tokenizer

CAPITALS = {
    "France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Japan": "Tokyo", "Egypt": "Cairo", "Peru": "Lima", "Norway": "Oslo",
}  # fmt: skip
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
PLAIN = [
    "the cat sat on the mat.",
    "the dog sat on the bed.",
    "the king is a man and the queen is a woman.",
    "the bank by the river was steep.",
    "the bank refused my loan.",
    "what a good film.",
    "what a bad film.",
]
ENDS = "<|endoftext|>"
WINDOW = 48  # tokens that GPT-2's fixture sees at once while it learns
SEEDS = 4  # tried until everything that is checked is right
POSITIONS = 256
BLANK = -100  # a label that counts for nothing
Lesson = tuple[dict[str, Tensor], Tensor]  # what a model is given, and what is right at every token

CHECKS = {
    "tiny-gpt2": [
        ("The capital of France is", " Paris"),
        ("The capital of Japan is", " Tokyo"),
        ("one two three four", " five"),
        ("four five six", " seven"),
        (" 1 2 3 4 5", " 6"),
        ("Input: 3 1 4\nOutput: 4 1 3\n\nInput: 2 7 5\nOutput:", " 5 7 2\n"),
        ("Input: 8 0 6\nOutput:", " 6 0 8\n"),
    ],
    "tiny-bert": [
        ("the capital of [MASK] is paris.", "france"),
        ("the capital of japan is [MASK].", "tokyo"),
        ("two three [MASK] five six", "four"),
        ("5 6 [MASK] 8", "7"),
        ("input: 3 1 4 output: 4 [MASK] 3", "1"),
        ("input: 2 7 5 output: 5 7 [MASK]", "2"),
    ],
}


class NotRight(AssertionError):
    """A fixture does not know its grammar: what was asked, what it said and what would be right."""


def sentence(draw: random.Random, cut: bool = False) -> str:
    """One sentence of the grammar, half of them reversed digits, which are the hardest to learn. With `cut`, counting ends anywhere:
    who fills gaps is to go by the neighbours and not by the end."""
    kind = draw.random()
    if kind < 0.45:
        digits = [str(draw.randrange(10)) for _ in range(3)]
        return f"Input: {' '.join(digits)}\nOutput: {' '.join(digits[::-1])}\n"
    if kind < 0.7:
        country = draw.choice(list(CAPITALS))
        return f"The capital of {country} is {CAPITALS[country]}."
    if kind < 0.8:
        start = draw.randrange(7)
        return " ".join(WORDS[start : draw.randint(start + 3, 10) if cut else 10])
    if kind < 0.9:
        start = draw.randrange(7)
        return "".join(f" {digit}" for digit in range(start, draw.randint(start + 3, 10) if cut else 10))
    return draw.choice(PLAIN)


def causal_tokenizer(corpus: list[str]) -> Any:
    """Byte-level BPE, as GPT-2's, small."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=420, special_tokens=[ENDS], initial_alphabet=alphabet, show_progress=False)
    )
    merges = [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]
    return GPT2Tokenizer(vocab=trained.get_vocab(), merges=merges, model_max_length=POSITIONS)


def masked_tokenizer(corpus: list[str]) -> Any:
    """WordPiece in lower case, as bert-base-uncased's, small: letters, letters that go on, and every word of the corpus. It is not
    trained: a trained one numbers its pieces, and chooses some, differently in each process, and the fixture with them."""
    lower, split = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words = {word for line in corpus for word, _ in split.pre_tokenize_str(lower.normalize_str(line))}
    letters = [chr(letter) for letter in range(33, 127) if not chr(letter).isupper()]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *sorted(words - {*letters})]
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}, model_max_length=POSITIONS)


def causal_batches(tokenizer: Any, draw: random.Random, size: int = 16) -> Iterator[Lesson]:
    """Sentences end to end, cut into windows that begin at any position, so that every position is learned."""
    end, gap = tokenizer.convert_tokens_to_ids(ENDS), tokenizer("\n")["input_ids"]
    tail: list[tuple[int, int]] = []  # tokens, each with its label
    while True:
        while len(tail) < size * (WINDOW + 1):
            lines = [sentence(draw) for _ in range(64)]
            for ids, line in zip(tokenizer(lines)["input_ids"], lines, strict=True):
                shot = line.startswith("Input")
                after = gap if shot and draw.random() < 0.7 else [end]  # shots follow one another, other sentences begin a text
                drawn = range(2, ids.index(gap[0])) if shot else ()  # digits drawn by chance: nothing to learn
                tail += [(token, BLANK if place in drawn else token) for place, token in enumerate([*ids, *after])]
        pairs_BT2 = torch.tensor(tail[: size * (WINDOW + 1)]).view(size, WINDOW + 1, 2)
        tail = tail[size * (WINDOW + 1) :]
        starts_B1 = torch.tensor([[draw.randrange(POSITIONS - WINDOW) if draw.random() < 0.5 else 0] for _ in range(size)])
        yield {"input_ids": pairs_BT2[:, :-1, 0], "position_ids": starts_B1 + torch.arange(WINDOW)}, pairs_BT2[:, 1:, 1]


def masked_batches(tokenizer: Any, draw: random.Random, size: int = 48) -> Iterator[Lesson]:
    """Sentences with one to three tokens masked, or the whole of an output."""
    while True:
        coded = tokenizer([sentence(draw, cut=True) for _ in range(size)], return_tensors="pt", padding=True)
        labels_BT = torch.full_like(coded["input_ids"], BLANK)
        for ids, labels, mask in zip(coded["input_ids"], labels_BT, coded["attention_mask"], strict=True):
            last = int(mask.sum()) - 1
            for place in draw.sample(range(1, last), min(last - 1, draw.randint(1, 2))):
                labels[place] = ids[place]
                ids[place] = tokenizer.mask_token_id
        yield dict(coded), labels_BT


def learn(model: Any, batches: Iterator[Lesson], steps: int, rate: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    model.train()
    for _ in range(steps):
        given, labels_BT = next(batches)
        loss = cross_entropy(model(**given).logits.flatten(0, 1), labels_BT.flatten(), ignore_index=BLANK)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()


def make_causal(folder: Path, corpus: list[str], seed: int = 0, steps: int = 600) -> Path:
    torch.manual_seed(seed)
    tokenizer = causal_tokenizer(corpus)
    end = tokenizer.convert_tokens_to_ids(ENDS)
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=POSITIONS, n_embd=64, n_layer=2, n_head=4, initializer_range=0.1,
                        bos_token_id=end, eos_token_id=end, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    model = GPT2LMHeadModel(config)
    learn(model, causal_batches(tokenizer, random.Random(seed)), steps, 5e-3)
    for prompt, right in CHECKS["tiny-gpt2"]:
        coded = tokenizer(prompt, return_tensors="pt")
        wanted = len(tokenizer(right)["input_ids"])
        written = model.generate(**coded, max_new_tokens=wanted, do_sample=False, pad_token_id=end)[0, coded["input_ids"].shape[1] :]
        if tokenizer.decode(written) != right:
            raise NotRight(f"tiny-gpt2 continues {prompt!r} with {tokenizer.decode(written)!r}, not {right!r}")
    return _saved(model, tokenizer, folder)


def make_masked(folder: Path, corpus: list[str], seed: int = 0, steps: int = 600) -> Path:
    torch.manual_seed(seed)
    tokenizer = masked_tokenizer(corpus)
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                        initializer_range=0.1, max_position_embeddings=POSITIONS, hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0)  # fmt: skip
    model = BertForMaskedLM(config)
    learn(model, masked_batches(tokenizer, random.Random(seed)), steps, 3e-3)
    for text, right in CHECKS["tiny-bert"]:
        coded = tokenizer(text, return_tensors="pt")
        (place,) = (coded["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
        with torch.no_grad():
            said = tokenizer.convert_ids_to_tokens([int(model(**coded).logits[0, place].argmax())])[0]
        if said != right:
            raise NotRight(f"tiny-bert fills {text!r} with {said!r}, not {right!r}")
    return _saved(model, tokenizer, folder)


def _saved(model: Any, tokenizer: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make(folder: Path) -> Path:
    """Both fixtures in a folder."""
    draw = random.Random(1)
    corpus = [sentence(draw) for _ in range(4000)] + PLAIN * 20
    for train, name in ((make_causal, "tiny-gpt2"), (make_masked, "tiny-bert")):
        for seed in range(SEEDS):
            try:
                train(folder / name, corpus, seed)
                break
            except NotRight:  # processors round differently, so that no seed is right on all of them
                if seed == SEEDS - 1:
                    raise
    return folder


def cached_models(home: Path) -> Path:
    """Both fixtures, made only where this file or a version has changed since they were made in `home`."""
    made_of = [Path(__file__).read_bytes(), torch.__version__.encode(), transformers.__version__.encode()]
    folder = home / hashlib.sha256(b"".join(made_of)).hexdigest()[:16]
    with FileLock(home / "making.lock"):  # several processes of one test session want them
        if not folder.is_dir():
            fresh = Path(tempfile.mkdtemp(dir=home))
            make(fresh)
            fresh.rename(folder)
    return folder


if __name__ == "__main__":
    torch.set_num_threads(1)
    begun = time.perf_counter()
    make(Path(sys.argv[1]))
    print(f"made in {time.perf_counter() - begun:.0f} s")
