"""Tiny models with tokenizers, trained on small grammars, for tests of the real pipelines.

    python -m tests.support.tiny_models FOLDER   makes FOLDER/tiny-gpt2, tiny-bert and tiny-t5

GPT-2 and BERT learn capitals, counting in words and in digits, a few plain sentences, and reversed
digits ("Input: 3 1 4", "Output: 4 1 3"). T5 translates English into German: in the perfect tense
the verb moves to the end, so the alignment is not a pure diagonal. `CHECKS` lists predictions that
must be correct; otherwise training raises FixtureError.
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
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Tokenizer,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)

CAPITALS = {"France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Japan": "Tokyo"}
CAPITALS |= {"Egypt": "Cairo", "Peru": "Lima", "Norway": "Oslo"}
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
PLAIN_SENTENCES = [
    *("the cat sat on the mat.", "the dog sat on the bed."),
    *("the king is a man and the queen is a woman.", "the bank by the river was steep."),
    *("the bank refused my loan.", "what a good film.", "what a bad film."),
]
SUBJECTS = {"dog": "der hund", "cat": "die katze", "man": "der mann", "woman": "die frau"}
OBJECTS = {"dog": "den hund", "cat": "die katze", "man": "den mann", "woman": "die frau"}
VERBS = {"saw": "gesehen", "found": "gefunden", "fed": "gefüttert"}
NUMBERS = dict(
    zip(WORDS, ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben"], strict=False)
)
END_OF_TEXT = "<|endoftext|>"
CONTEXT_LENGTH = 48  # tokens of a training sequence of tiny-gpt2
MAX_SEEDS = 4  # seeds to try until all checks pass
MAX_POSITIONS = 256
IGNORE_INDEX = -100  # a label without a loss
# inputs of the model, and the label of every token
TrainingBatch = tuple[dict[str, Tensor], Tensor]

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
    "tiny-t5": [
        ("the dog saw the cat", "der hund hat die katze gesehen"),
        ("the woman fed the man", "die frau hat den mann gefüttert"),
        ("two seven one", "zwei sieben eins"),
        ("six five four three one", "sechs fünf vier drei eins"),
    ],
}


class FixtureError(AssertionError):
    """A fixture has not learned the grammar; the message has input, prediction and target."""


def sample_sentence(rng: random.Random, truncate: bool = False) -> str:
    """Return a sentence of the grammar; half of them are reversed digits, the hardest to learn.

    With `truncate`, counting ends at any number, so that a masked model learns to use the
    neighbors of a mask and not the end of the sentence.
    """
    kind = rng.random()
    if kind < 0.45:
        digits = [str(rng.randrange(10)) for _ in range(3)]
        return f"Input: {' '.join(digits)}\nOutput: {' '.join(digits[::-1])}\n"
    if kind < 0.7:
        country = rng.choice(list(CAPITALS))
        return f"The capital of {country} is {CAPITALS[country]}."
    if kind < 0.8:
        start = rng.randrange(7)
        return " ".join(WORDS[start : rng.randint(start + 3, 10) if truncate else 10])
    if kind < 0.9:
        start = rng.randrange(7)
        digits = range(start, rng.randint(start + 3, 10) if truncate else 10)
        return "".join(f" {digit}" for digit in digits)
    return rng.choice(PLAIN_SENTENCES)


def causal_tokenizer(corpus: list[str]) -> Any:
    """Return a small byte-level BPE tokenizer, as that of GPT-2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"initial_alphabet": alphabet, "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=[END_OF_TEXT], **options)
    tokenizer.train_from_iterator(corpus, trainer)
    merges = [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    return GPT2Tokenizer(vocab=tokenizer.get_vocab(), merges=merges, model_max_length=MAX_POSITIONS)


def masked_tokenizer(corpus: list[str]) -> Any:
    """Return a small lower-case WordPiece tokenizer, as that of bert-base-uncased.

    Its pieces are letters, continued letters, and the words of the corpus. It is not trained,
    because training gives different pieces and ids in each process.
    """
    lower, split = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words = {
        word for line in corpus for word, _ in split.pre_tokenize_str(lower.normalize_str(line))
    }
    letters = [chr(letter) for letter in range(33, 127) if not chr(letter).isupper()]
    pieces = [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *letters,
        *(f"##{letter}" for letter in letters),
        *sorted(words - {*letters}),
    ]
    return BertTokenizer(
        vocab={piece: token_id for token_id, piece in enumerate(pieces)},
        model_max_length=MAX_POSITIONS,
    )


def causal_batches(tokenizer: Any, rng: random.Random, size: int = 16) -> Iterator[TrainingBatch]:
    """Return windows of concatenated sentences, which begin at any position."""
    end, newline_ids = tokenizer.convert_tokens_to_ids(END_OF_TEXT), tokenizer("\n")["input_ids"]
    buffer: list[tuple[int, int]] = []  # tokens, each with its label
    while True:
        while len(buffer) < size * (CONTEXT_LENGTH + 1):
            lines = [sample_sentence(rng) for _ in range(64)]
            for ids, line in zip(tokenizer(lines)["input_ids"], lines, strict=True):
                is_few_shot = line.startswith("Input")
                # few-shot examples follow one another; other sentences start a text
                separator = newline_ids if is_few_shot and rng.random() < 0.7 else [end]
                # random digits cannot be learned
                random_positions = range(2, ids.index(newline_ids[0])) if is_few_shot else ()
                buffer += [
                    (token, IGNORE_INDEX if position in random_positions else token)
                    for position, token in enumerate([*ids, *separator])
                ]
        n_tokens = size * (CONTEXT_LENGTH + 1)
        pairs_BT2 = torch.tensor(buffer[:n_tokens]).view(size, CONTEXT_LENGTH + 1, 2)
        buffer = buffer[n_tokens:]
        last = MAX_POSITIONS - CONTEXT_LENGTH
        starts = [rng.randrange(last) if rng.random() < 0.5 else 0 for _ in range(size)]
        position_BT = torch.tensor(starts)[:, None] + torch.arange(CONTEXT_LENGTH)
        yield {"input_ids": pairs_BT2[:, :-1, 0], "position_ids": position_BT}, pairs_BT2[:, 1:, 1]


def masked_batches(tokenizer: Any, rng: random.Random, size: int = 48) -> Iterator[TrainingBatch]:
    """Return sentences with one to three masked tokens, or with a masked output."""
    while True:
        lines = [sample_sentence(rng, truncate=True) for _ in range(size)]
        encoding = tokenizer(lines, return_tensors="pt", padding=True)
        labels_BT = torch.full_like(encoding["input_ids"], IGNORE_INDEX)
        for ids, labels, mask in zip(
            encoding["input_ids"], labels_BT, encoding["attention_mask"], strict=True
        ):
            last = int(mask.sum()) - 1
            for position in rng.sample(range(1, last), min(last - 1, rng.randint(1, 2))):
                labels[position] = ids[position]
                ids[position] = tokenizer.mask_token_id
        yield dict(encoding), labels_BT


def train_model(
    model: Any, batches: Iterator[TrainingBatch], steps: int, learning_rate: float
) -> None:
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, weight_decay=0.01, betas=(0.9, 0.98)
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=steps, pct_start=0.1
    )
    model.train()
    for _ in range(steps):
        inputs, labels_BT = next(batches)
        loss = cross_entropy(
            model(**inputs).logits.flatten(0, 1), labels_BT.flatten(), ignore_index=IGNORE_INDEX
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()


def make_causal(folder: Path, corpus: list[str], seed: int = 0, steps: int = 600) -> Path:
    torch.manual_seed(seed)
    tokenizer = causal_tokenizer(corpus)
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=MAX_POSITIONS,
        n_embd=64,
        n_layer=2,
        n_head=4,
        initializer_range=0.1,
        bos_token_id=end,
        eos_token_id=end,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config)
    train_model(model, causal_batches(tokenizer, random.Random(seed)), steps, 5e-3)
    for prompt, expected in CHECKS["tiny-gpt2"]:
        encoding = tokenizer(prompt, return_tensors="pt")
        n_tokens = len(tokenizer(expected)["input_ids"])
        generated = model.generate(
            **encoding, max_new_tokens=n_tokens, do_sample=False, pad_token_id=end
        )[0, encoding["input_ids"].shape[1] :]
        if tokenizer.decode(generated) != expected:
            raise FixtureError(
                f"tiny-gpt2 continues {prompt!r} with {tokenizer.decode(generated)!r}, not "
                f"{expected!r}"
            )
    return _save(model, tokenizer, folder)


def make_masked(folder: Path, corpus: list[str], seed: int = 0, steps: int = 600) -> Path:
    torch.manual_seed(seed)
    tokenizer = masked_tokenizer(corpus)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        initializer_range=0.1,
        max_position_embeddings=MAX_POSITIONS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config)
    train_model(model, masked_batches(tokenizer, random.Random(seed)), steps, 3e-3)
    for text, expected in CHECKS["tiny-bert"]:
        encoding = tokenizer(text, return_tensors="pt")
        (position,) = (encoding["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
        with torch.no_grad():
            prediction = tokenizer.convert_ids_to_tokens(
                [int(model(**encoding).logits[0, position].argmax())]
            )[0]
        if prediction != expected:
            raise FixtureError(f"tiny-bert fills {text!r} with {prediction!r}, not {expected!r}")
    return _save(model, tokenizer, folder)


def sample_pair(rng: random.Random) -> tuple[str, str]:
    """Return an English sentence and its translation."""
    if rng.random() < 0.5:
        subject, verb, thing = (rng.choice(list(each)) for each in (SUBJECTS, VERBS, OBJECTS))
        return (
            f"the {subject} {verb} the {thing}",
            f"{SUBJECTS[subject]} hat {OBJECTS[thing]} {VERBS[verb]}",
        )
    words = rng.choices(list(NUMBERS), k=rng.randint(2, 7))
    return " ".join(words), " ".join(NUMBERS[word] for word in words)


def word_tokenizer() -> Any:
    """Return T5's tokenizer with one piece for each word of the grammar."""
    texts = [*VERBS, *VERBS.values(), *NUMBERS, *NUMBERS.values(), *SUBJECTS, "the", "hat"]
    texts += [word for phrase in (*SUBJECTS.values(), *OBJECTS.values()) for word in phrase.split()]
    pieces = sorted({"▁" + word for word in texts})
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    return T5Tokenizer(
        vocab=[*vocabulary, *((piece, -1.0) for piece in pieces)],
        extra_ids=0,
        additional_special_tokens=[],
        model_max_length=512,
    )


def translation_batches(
    tokenizer: Any, rng: random.Random, size: int = 48
) -> Iterator[TrainingBatch]:
    """Return sentences with their translations."""
    while True:
        sources, targets = zip(*(sample_pair(rng) for _ in range(size)), strict=True)
        inputs = tokenizer(list(sources), return_tensors="pt", padding=True)
        labels_BT = tokenizer(list(targets), return_tensors="pt", padding=True)["input_ids"]
        labels_BT[labels_BT == tokenizer.pad_token_id] = IGNORE_INDEX
        yield dict(inputs) | {"labels": labels_BT}, labels_BT


def make_encoder_decoder(folder: Path, corpus: list[str], seed: int = 0, steps: int = 500) -> Path:
    torch.manual_seed(seed)
    tokenizer = word_tokenizer()
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=tokenizer.pad_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = T5ForConditionalGeneration(config)
    train_model(model, translation_batches(tokenizer, random.Random(seed)), steps, 3e-3)
    for source, expected in CHECKS["tiny-t5"]:
        ids = model.generate(**tokenizer(source, return_tensors="pt"), max_new_tokens=20)[0]
        translation = tokenizer.decode(ids, skip_special_tokens=True)
        if translation != expected:
            raise FixtureError(f"tiny-t5 translates {source!r} to {translation!r}")
    return _save(model, tokenizer, folder)


def _save(model: Any, tokenizer: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_models(folder: Path) -> Path:
    """Train all fixtures, and save them in a folder."""
    rng = random.Random(1)
    corpus = [sample_sentence(rng) for _ in range(4000)] + PLAIN_SENTENCES * 20
    makers = {"gpt2": make_causal, "bert": make_masked, "t5": make_encoder_decoder}
    for name, train in makers.items():
        for seed in range(MAX_SEEDS):
            try:
                train(folder / f"tiny-{name}", corpus, seed)
                break
            except FixtureError:  # CPUs round differently: no seed passes on all of them
                if seed == MAX_SEEDS - 1:
                    raise
    return folder


def cached_models(home: Path) -> Path:
    """Return the fixtures in `home`; train them again if this file or a version has changed."""
    versions = torch.__version__ + transformers.__version__
    sources = [Path(__file__).read_bytes(), versions.encode()]
    folder = home / hashlib.sha256(b"".join(sources)).hexdigest()[:16]
    with FileLock(home / "making.lock"):  # several processes of one test session may train them
        if not folder.is_dir():
            temporary_folder = Path(tempfile.mkdtemp(dir=home))
            make_models(temporary_folder)
            temporary_folder.rename(folder)
    return folder


if __name__ == "__main__":
    torch.set_num_threads(1)
    started_at = time.perf_counter()
    make_models(Path(sys.argv[1]))
    print(f"made in {time.perf_counter() - started_at:.0f} s")
