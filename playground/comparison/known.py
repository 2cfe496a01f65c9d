"""Well-known transformers: how many parameters, which of three families, what each brought. Importing this loads nothing heavy.

Counts are either made here, from a configuration on torch's meta device, which holds no numbers, or cited with their source.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from .asked import text_of, whole_of
from .work import Tell

# Name, class and configuration of transformers (its defaults where none are given), and what the numbers are of.
COUNTED: list[tuple[str, str, str, dict[str, int], str]] = [
    ("BERT base", "BertModel", "BertConfig", {}, "bert-base-uncased: 12 layers of 768, 12 heads, 30,522 tokens; 110 M in Devlin 2018"),
    ("BERT large", "BertModel", "BertConfig",
     {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
     "bert-large-uncased: 24 layers of 1,024, 16 heads; 340 M in Devlin 2018"),
    ("GPT-2", "GPT2LMHeadModel", "GPT2Config", {},
     "gpt2: 12 layers of 768, 12 heads, 50,257 tokens; output and input share their vectors; 117 M in Radford 2019"),
    ("GPT-2 XL", "GPT2LMHeadModel", "GPT2Config", {"n_embd": 1600, "n_layer": 48, "n_head": 25}, "gpt2-xl: 48 layers of 1,600, 25 heads"),
    ("T5 base", "T5ForConditionalGeneration", "T5Config",
     {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
     "t5-base: 12 layers of 768 in the encoder, as many in the decoder"),
    ("ViT-B/16", "ViTModel", "ViTConfig", {}, "12 layers of 768 on 14 x 14 patches of 16 x 16 pixels, without a classification head"),
]  # fmt: skip

CITED: list[tuple[str, int, str]] = [
    ("Transformer base", 65_000_000, "Vaswani et al. 2017, table 3"),
    ("Transformer big", 213_000_000, "Vaswani et al. 2017, table 3"),
    ("T5-11B", 11_000_000_000, "Raffel et al. 2020, section 3.7"),
    ("LLaMA 7B", 6_700_000_000, "Touvron et al. 2023, table 2"),
    ("Mistral 7B", 7_000_000_000, "Jiang et al. 2023, abstract"),
    ("LLaMA 65B", 65_200_000_000, "Touvron et al. 2023, table 2"),
    ("GPT-3", 175_000_000_000, "Brown et al. 2020, table 2.1"),
    ("PaLM", 540_000_000_000, "Chowdhery et al. 2022, table 1"),
]

FAMILIES: list[dict[str, str]] = [
    {
        "family": "encoder only",
        "examples": "BERT, RoBERTa, ViT",
        "direction": "both ways: every token sees every other one",
        "generates": "no: it fills gaps and gives vectors",
        "best_for": "classifying, tagging, searching, comparing texts",
        "objective": "masked tokens: find those that were covered (BERT covers 15 %)",
        "cross_attention": "none",
    },
    {
        "family": "decoder only",
        "examples": "GPT-2, GPT-3, LLaMA, Mistral",
        "direction": "left to right: a token sees itself and what stands before it",
        "generates": "yes, token by token",
        "best_for": "continuing and writing text, tasks given as a text with examples",
        "objective": "the next token",
        "cross_attention": "none: the prompt and the answer are one sequence",
    },
    {
        "family": "encoder-decoder",
        "examples": "the Transformer of 2017, T5, BART, the model of the Train tab",
        "direction": "the encoder both ways, the decoder left to right",
        "generates": "yes, token by token",
        "best_for": "turning one sequence into another: translating, summarising, reversing",
        "objective": "the next token of the target, given the source (T5: the spans that were taken out)",
        "cross_attention": "in every layer of the decoder: its queries, the encoder's keys and values",
    },
]

TREE: list[dict[str, Any]] = [
    {
        "name": "Transformer",
        "year": 2017,
        "from": [],
        "family": "encoder-decoder",
        "idea": "attention alone, without recurrence: every position in one step, so training runs in parallel",
        "use": "translation",
        "here": "built from scratch: Train it on reversal, look into every head, take heads away, publish it",
        "source": "Vaswani et al. 2017, Attention Is All You Need",
    },
    {
        "name": "BERT",
        "year": 2018,
        "from": ["Transformer"],
        "family": "encoder only",
        "idea": "the encoder alone, pretrained on covered words, then fine-tuned with a small head",
        "use": "classification, tagging, question answering, search",
        "here": "fill gaps, see its heads and its two banks, put a head on it and train that, ask it to reverse",
        "source": "Devlin et al. 2018, BERT",
    },
    {
        "name": "GPT-2",
        "year": 2019,
        "from": ["Transformer"],
        "family": "decoder only",
        "idea": "the decoder alone on much text: tasks are solved by continuing a prompt, without training on them",
        "use": "writing text",
        "here": "continue any text with the probabilities of each token, see its heads, give it worked examples of reversal",
        "source": "Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
    },
    {
        "name": "T5",
        "year": 2019,
        "from": ["Transformer"],
        "family": "encoder-decoder",
        "idea": "every task as text in, text out; positions as a bias that depends on the distance",
        "use": "translation, summaries, question answering",
        "here": "its plan is that of the model in the Train tab; its own weights are not loaded here",
        "source": "Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    },
    {
        "name": "ViT",
        "year": 2020,
        "from": ["BERT"],
        "family": "encoder only",
        "idea": "an image as a sequence of patches, read as words are",
        "use": "classifying images",
        "here": "its parameters, counted; images are not read here",
        "source": "Dosovitskiy et al. 2021, An Image is Worth 16x16 Words",
    },
    {
        "name": "LLaMA, Mistral",
        "year": 2023,
        "from": ["GPT-2"],
        "family": "decoder only",
        "idea": "rotary positions, RMSNorm, gated feed-forward layers; Mistral and the larger of their kind share keys among heads",
        "use": "assistants, writing, code",
        "here": "a model of this kind that is small enough and has open weights can be named in Compare; those of 7 B are too large",
        "source": "Touvron et al. 2023, LLaMA; Jiang et al. 2023, Mistral 7B",
    },
]


def sizes(what: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The parameters of well-known models, the smallest first, with `FAMILIES` and `TREE`.

    `what`: parameters and name ("this model") of the model at hand; without parameters it is left out. `how` is "here", "counted" or
    "cited"; `source` says of what, or by whom; `times` is how many of the model at hand it would take.
    """
    rows: list[dict[str, Any]] = []
    for done, (name, built, config, fields, source) in enumerate(COUNTED):
        tell.share(done, len(COUNTED), "models")
        rows.append(
            {
                "name": name,
                "parameters": counted(built, config, tuple(fields.items())),
                "how": "counted",
                "source": source,
            }
        )
    rows += [
        {"name": name, "parameters": parameters, "how": "cited", "source": source}
        for name, parameters, source in CITED
    ]
    own = whole_of(what, "parameters", 0, 0, 10**13)
    if own:
        rows.append(
            {
                "name": text_of(what, "name", 80, "this model"),
                "parameters": own,
                "how": "here",
                "source": "the model at hand",
            }
        )
    for row in rows:
        row["times"] = row["parameters"] / own if own else None
    return {
        "models": sorted(rows, key=lambda row: row["parameters"]),
        "families": FAMILIES,
        "tree": TREE,
    }


@cache
def counted(built: str, config: str, fields: tuple[tuple[str, int], ...]) -> int:
    """The parameters of a model of transformers; those that are shared count once."""
    import torch
    import transformers

    with torch.device("meta"):
        model = getattr(transformers, built)(getattr(transformers, config)(**dict(fields)))
    return sum(each.numel() for each in model.parameters())
