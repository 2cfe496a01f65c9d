"""Facts on well-known transformers: parameter counts, architectures and contributions.

Counts are either computed from a configuration on torch's meta device, which allocates no
memory, or cited with their source. Importing this loads nothing heavy.
"""

import re
from collections import Counter
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from playground.common import messages
from playground.jobs.progress import ProgressReporter

from .requests import JobRequest, Text

# Name, class and configuration of transformers (defaults if none are given), and the checkpoint.
COUNTED: list[tuple[str, str, str, dict[str, int], str]] = [
    (
        "BERT base",
        "BertModel",
        "BertConfig",
        {},
        "bert-base-uncased: 12 layers of width 768, 12 heads, 30,522 tokens; 110 M in Devlin 2018",
    ),
    (
        "BERT large",
        "BertModel",
        "BertConfig",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
        "bert-large-uncased: 24 layers of width 1,024, 16 heads; 340 M in Devlin 2018",
    ),
    (
        "GPT-2",
        "GPT2LMHeadModel",
        "GPT2Config",
        {},
        (
            "gpt2: 12 layers of width 768, 12 heads, 50,257 tokens; tied input and output "
            "embeddings; 117 M in Radford 2019"
        ),
    ),
    (
        "GPT-2 XL",
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 1600, "n_layer": 48, "n_head": 25},
        "gpt2-xl: 48 layers of width 1,600, 25 heads",
    ),
    (
        "GPT-3",
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048},
        "GPT-2's code with the sizes of table 2.1 of Brown 2020: 96 layers of width 12,288, "
        "96 heads; 175 B there",
    ),
    (
        "T5 base",
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
        "t5-base: 12 layers of width 768 in the encoder, as many in the decoder",
    ),
    (
        "LLaMA 7B",
        "LlamaForCausalLM",
        "LlamaConfig",
        {},
        "32 layers of width 4,096, 32 heads, 32,000 tokens; 6.7 B in Touvron 2023, table 2",
    ),
    (
        "Mistral 7B",
        "MistralForCausalLM",
        "MistralConfig",
        {},
        "32 layers of width 4,096, 32 heads that share 8 heads of keys and values, 32,000 "
        "tokens; 7 B in Jiang 2023",
    ),
    (
        "ViT-B/16",
        "ViTModel",
        "ViTConfig",
        {},
        "12 layers of width 768 on 14 × 14 patches of 16 × 16 pixels, without pooler and "
        "classification head",
    ),
]

CITED: list[tuple[str, int, str]] = [
    (
        "Transformer base",
        65_000_000,
        "Vaswani et al. 2017, table 3; one table of 37,000 tokens for source, target and output "
        "(63.1 M when counted here; with three tables 101.0 M)",
    ),
    ("Transformer big", 213_000_000, "Vaswani et al. 2017, table 3"),
    ("T5-11B", 11_000_000_000, "Raffel et al. 2020, section 3.7"),
    ("LLaMA 65B", 65_200_000_000, "Touvron et al. 2023, table 2"),
    ("PaLM", 540_000_000_000, "Chowdhery et al. 2022, table 1"),
]

# The parts of GPT-3 by the names of GPT-2's parameters; the first pattern that matches counts.
GPT3_PARTS = {
    "biases and norms": r"\.bias$|ln_",
    "token embeddings": r"wte",
    "position vectors": r"wpe",
    "queries, keys, values": r"attn\.c_attn",
    "attention outputs": r"attn\.c_proj",
    "feed-forward, up": r"mlp\.c_fc",
    "feed-forward, down": r"mlp\.c_proj",
}

ARCHITECTURE_FACTS: list[dict[str, str]] = [
    {
        "architecture": "encoder only",
        "examples": "BERT, RoBERTa, ViT",
        "direction": messages.BIDIRECTIONAL,
        "generates": "no: it predicts masked tokens and returns vectors",
        "best_for": "classifying, tagging, searching, comparing texts",
        "objective": (
            "masked language modeling: predict chosen tokens (BERT chooses 15 %; of these it "
            "masks 80 %, replaces 10 % and leaves 10 %); ViT: the class of an image"
        ),
        "cross_attention": "none",
    },
    {
        "architecture": "decoder only",
        "examples": "GPT-2, GPT-3, LLaMA, Mistral",
        "direction": messages.LEFT_TO_RIGHT,
        "generates": "yes, token by token",
        "best_for": "text generation, and tasks given as a prompt with few-shot examples",
        "objective": "the next token",
        "cross_attention": "none: the prompt and the answer are one sequence",
    },
    {
        "architecture": "encoder-decoder",
        "examples": "the Transformer of 2017, T5, BART, the model of the Train tab",
        "direction": "the encoder bidirectional, the decoder left to right",
        "generates": "yes, token by token",
        "best_for": "sequence to sequence: translation, summarization, reversal",
        "objective": "the next token of the target, given the source (T5: the masked spans)",
        "cross_attention": (
            "in every layer of the decoder: its queries, the encoder's keys and values"
        ),
    },
]

# `arxiv` has the ids of the papers in `source`; the paper on GPT-2 has none.
ARCHITECTURE_TREE: list[dict[str, Any]] = [
    {
        "name": "Transformer",
        "year": 2017,
        "from": [],
        "architecture": "encoder-decoder",
        "idea": "attention alone, without recurrence: all positions in parallel during training",
        "use": "translation",
        "here": (
            "built from scratch: train it on reversal, inspect every head, ablate heads, publish it"
        ),
        "source": "Vaswani et al. 2017, Attention Is All You Need",
        "arxiv": ["1706.03762"],
    },
    {
        "name": "BERT",
        "year": 2018,
        "from": ["Transformer"],
        "architecture": "encoder only",
        "idea": "the encoder alone, pretrained on masked tokens, then fine-tuned with a small head",
        "use": "classification, tagging, question answering, search",
        "here": (
            "fill-mask, its heads, word in context, a classification head to train, the benchmark"
        ),
        "source": "Devlin et al. 2018, BERT",
        "arxiv": ["1810.04805"],
    },
    {
        "name": "GPT-2",
        "year": 2019,
        "from": ["Transformer"],
        "architecture": "decoder only",
        "idea": (
            "the decoder alone, trained on much text: it solves tasks by continuing a prompt, "
            "without fine-tuning"
        ),
        "use": "writing text",
        "here": (
            "text generation with the probabilities of each token, its heads, few-shot reversal"
        ),
        "source": "Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
        "arxiv": [""],
    },
    {
        "name": "T5",
        "year": 2019,
        "from": ["Transformer"],
        "architecture": "encoder-decoder",
        "idea": "every task as text in, text out; positions as a bias that depends on the distance",
        "use": "translation, summaries, question answering",
        "here": (
            "translation of a typed sentence with the cross-attention of every head; the model in "
            "the Train tab has the same architecture"
        ),
        "source": (
            "Raffel et al. 2020 (first version 2019), Exploring the Limits of Transfer Learning "
            "with a Unified Text-to-Text Transformer"
        ),
        "arxiv": ["1910.10683"],
    },
    {
        "name": "GPT-3",
        "year": 2020,
        "from": ["GPT-2"],
        "architecture": "decoder only",
        "idea": (
            "GPT-2's architecture, with sparse attention in every second layer, at 112 times the "
            "size of GPT-2 XL: it learns a task from a few examples in the prompt; later models "
            "are also trained on human feedback (RLHF), among them GPT-4 (2023), whose size is "
            "not published"
        ),
        "use": "assistants, writing, code",
        "here": "GPT-3's parameter count; few-shot prompts, with GPT-2",
        "source": (
            "Brown et al. 2020, Language Models are Few-Shot Learners; Ouyang et al. 2022 (RLHF); "
            "OpenAI 2023, GPT-4 Technical Report"
        ),
        "arxiv": ["2005.14165", "2203.02155", "2303.08774"],
    },
    {
        "name": "ViT",
        "year": 2020,
        "from": ["BERT"],
        "architecture": "encoder only",
        "idea": "an image as a sequence of patches, processed like tokens",
        "use": "classifying images",
        "here": "its parameter count; images are not supported here",
        "source": "Dosovitskiy et al. 2021 (first version 2020), An Image is Worth 16x16 Words",
        "arxiv": ["2010.11929"],
    },
    {
        "name": "LLaMA, Mistral",
        "year": 2023,
        "from": ["GPT-2"],
        "architecture": "decoder only",
        "idea": (
            "rotary positions, RMSNorm, gated feed-forward layers; Mistral 7B, Llama 2 70B and "
            "Llama 3 share keys and values among heads"
        ),
        "use": "assistants, writing, code",
        "here": (
            "a small model of this kind with open weights can be used in Compare; those of 7 B "
            "are too large"
        ),
        "source": (
            "Touvron et al. 2023, LLaMA; Touvron et al. 2023, Llama 2; Jiang et al. 2023, Mistral "
            "7B; Grattafiori et al. 2024, The Llama 3 Herd of Models"
        ),
        "arxiv": ["2302.13971", "2307.09288", "2310.06825", "2407.21783"],
    },
]


class ModelSizesRequest(JobRequest):
    """The user's model for the comparison; without parameters it is left out."""

    parameters: int = Field(0, ge=0, le=10**13)
    name: Annotated[Text, Field(max_length=80)] = "this model"


def model_sizes(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Return the parameter counts of well-known models in ascending order.

    `request`: see ModelSizesRequest. `method` is "here", "counted" or "cited"; `source` is the
    configuration or the reference; `ratio` is the ratio to the user's model.
    """
    progress.message("Counting parameters")
    rows: list[dict[str, Any]] = []
    for done, (name, built, config, fields, source) in enumerate(COUNTED):
        progress.progress(done, len(COUNTED), "models")
        rows.append(
            {
                "name": name,
                "parameters": count_parameters(built, config, tuple(fields.items())),
                "method": "counted",
                "source": source,
            }
        )
    rows += [
        {"name": name, "parameters": parameters, "method": "cited", "source": source}
        for name, parameters, source in CITED
    ]
    parsed = ModelSizesRequest.parse(request)
    own = parsed.parameters
    if own:
        rows.append(
            {"name": parsed.name, "parameters": own, "method": "here", "source": "this model"}
        )
    for row in rows:
        row["ratio"] = row["parameters"] / own if own else None
    return {
        "models": sorted(rows, key=lambda row: row["parameters"]),
        "gpt3": gpt3_parts(),
        "architectures": ARCHITECTURE_FACTS,
        "tree": ARCHITECTURE_TREE,
    }


@cache
def count_parameters(built: str, config: str, fields: tuple[tuple[str, int], ...]) -> int:
    """Count the parameters of a model of transformers; shared ones count once.

    Transformers adds a pooler to ViT, which the published model does not have.
    """
    return sum(each.numel() for each in _build_on_meta(built, config, fields).parameters())


def _build_on_meta(built: str, config: str, fields: tuple[tuple[str, int], ...]) -> Any:
    import torch
    import transformers

    with torch.device("meta"):
        options = {"add_pooling_layer": False} if built == "ViTModel" else {}
        return getattr(transformers, built)(
            getattr(transformers, config)(**dict(fields)), **options
        )


@cache
def gpt3_parts() -> list[dict[str, Any]]:
    """Count GPT-3's parameters by part: by formula, and on a model of its sizes.

    The formulas count matrices alone, as tables of GPT-3 do: without biases, norms and position
    vectors, and with an output layer of its own. The model has all of these, and one table for
    input and output.
    """
    _, built, config, fields, _ = next(row for row in COUNTED if row[0] == "GPT-3")
    model = _build_on_meta(built, config, tuple(fields.items()))
    d, layers = fields["n_embd"], fields["n_layer"]
    vocab_size = model.config.vocab_size
    counted: Counter[str] = Counter()
    for name, weight in model.named_parameters():
        part = next(part for part, pattern in GPT3_PARTS.items() if re.search(pattern, name))
        counted[part] += weight.numel()
    for part in ("queries", "keys", "values"):
        counted[part] = counted["queries, keys, values"] // 3
    del counted["queries, keys, values"]
    table = (f"{vocab_size:,} × {d:,}", vocab_size * d)
    square = (f"{layers} × {d:,} × {d:,}", layers * d * d)
    wide = (f"{layers} × {d:,} × {4 * d:,}", layers * d * 4 * d)
    formulas = {
        "token embeddings": table,
        "queries": square,
        "keys": square,
        "values": square,
        "attention outputs": square,
        "feed-forward, up": wide,
        "feed-forward, down": wide,
        "output layer": table,
        "position vectors": ("", 0),
        "biases and norms": ("", 0),
    }
    return [
        {"part": part, "formula": formula, "by_formula": number, "counted": counted[part]}
        for part, (formula, number) in formulas.items()
    ]
