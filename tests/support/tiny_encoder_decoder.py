"""A tiny T5 that translates a small English grammar into German, trained here.

It is a fixture for tests of pretrained encoder-decoders: the real tokenizer and model of
transformers, on weights that solve a task. In the perfect tense the German verb moves to the end,
so that the alignment is not a pure diagonal.

    python -m tests.support.tiny_encoder_decoder FOLDER      makes FOLDER/tiny-t5
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import T5Config, T5ForConditionalGeneration, T5Tokenizer

NAME = "tiny-t5"
SUBJECTS = {"dog": "der hund", "cat": "die katze", "man": "der mann", "woman": "die frau"}
OBJECTS = {"dog": "den hund", "cat": "die katze", "man": "den mann", "woman": "die frau"}
VERBS = {"saw": "gesehen", "found": "gefunden", "fed": "gefüttert"}
NUMBERS = {
    "one": "eins",
    "two": "zwei",
    "three": "drei",
    "four": "vier",
    "five": "fünf",
    "six": "sechs",
    "seven": "sieben",
}
CHECKS = [
    ("the dog saw the cat", "der hund hat die katze gesehen"),
    ("the woman fed the man", "die frau hat den mann gefüttert"),
    ("two seven one", "zwei sieben eins"),
    ("six five four three one", "sechs fünf vier drei eins"),
]
IGNORE_INDEX = -100


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


def make_encoder_decoder(folder: Path, seed: int = 0, steps: int = 500) -> Path:
    """Train the model, check its translations, and save it.

    Raises:
        AssertionError: if it translates an example of `CHECKS` incorrectly.
    """
    torch.manual_seed(seed)
    rng = random.Random(seed)
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
    model = T5ForConditionalGeneration(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=steps, pct_start=0.1
    )
    for _ in range(steps):
        sources, targets = zip(*(sample_pair(rng) for _ in range(48)), strict=True)
        inputs = tokenizer(list(sources), return_tensors="pt", padding=True)
        labels = tokenizer(list(targets), return_tensors="pt", padding=True)["input_ids"]
        labels[labels == tokenizer.pad_token_id] = IGNORE_INDEX
        model(**inputs, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    model.eval()
    for source, expected in CHECKS:
        ids = model.generate(**tokenizer(source, return_tensors="pt"), max_new_tokens=20)[0]
        translation = tokenizer.decode(ids, skip_special_tokens=True)
        assert translation == expected, f"tiny-t5 translates {source!r} to {translation!r}"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_encoder_decoder(Path(sys.argv[1]) / NAME)
