"""Facts on the three architectures, and their history."""

from typing import Any

from playground.common import messages

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
