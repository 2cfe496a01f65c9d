"""A reference transformer in numpy, in double precision, without code of the playground.

It computes each head of each sequence separately.
"""

import math

import numpy as np

GATES = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
    "swiglu": lambda x: x / (1 + np.exp(-x)),
}
# T5's relative positions are compared with those of transformers, in tests/unit/models.
POSITION_TYPES = (
    *("learned", "sinusoidal", "none", "learned-from-end", "randomized", "rope", "alibi"),
)


def rotated(x_PK):
    """Rotate the numbers i and i + K/2 of each vector by its position * 10000^(-2i/K)."""
    n, size = x_PK.shape
    angle = np.arange(n)[:, None] / 10_000 ** (np.arange(size // 2) * 2 / size)
    turned = (x_PK[:, : size // 2] + 1j * x_PK[:, size // 2 :]) * np.exp(1j * angle)
    return np.concatenate([turned.real, turned.imag], 1)


def reference_attention(model, source_BS, decoder_input_BT):
    """Return attention weights QM as lists [kind][layer][row][head], and logits TV by row."""
    w = {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}
    config = model.config
    d, key_size, value_size = config.d_model, config.key_size, config.value_size
    n_sharing = config.n_heads // (config.n_kv_heads or config.n_heads)
    attention = {
        kind: [[[None] * config.n_heads for _ in source_BS] for _ in range(config.n_layers)]
        for kind in ("encoder", "decoder", "cross")
    }

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True) if config.norm_type == "layer" else x
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
        return x * w[f"{name}.weight"] + w.get(f"{name}.bias", 0)

    def positions(name, tokens):
        i, n = np.arange(d), np.arange(len(tokens))
        if config.position_type == "sinusoidal":
            angle = n[:, None] / 10_000 ** ((i // 2 * 2) / d)
            return config.sinusoidal_scale * np.where(i % 2 == 0, np.sin(angle), np.cos(angle))
        if f"{name}.position_embedding" not in w:
            return 0
        if config.position_type == "randomized":  # every fourth of the vectors
            n = 4 * n
        if config.position_type == "learned-from-end" and name == "source_embedding":
            n = np.maximum(np.count_nonzero(tokens) - 1 - n, 0)
        return w[f"{name}.position_embedding"][n]

    def embed(tokens, name):
        shared = w["target_embedding.token_embedding.weight"]
        table = w.get(f"{name}.token_embedding.weight", shared)
        return table[tokens] * np.sqrt(d) + positions(name, tokens)

    def attend(x, memory, name, attn_mask, weights_by_head):
        query = linear(x, f"{name}.q_proj")
        key, value = linear(memory, f"{name}.k_proj"), linear(memory, f"{name}.v_proj")
        outputs = []
        for head in range(config.n_heads):
            shared = head // n_sharing
            q = query[:, head * key_size : (head + 1) * key_size]
            k = key[:, shared * key_size : (shared + 1) * key_size]
            v = value[:, shared * value_size : (shared + 1) * value_size]
            is_relative = x is memory
            if config.position_type == "rope" and is_relative:
                q, k = rotated(q), rotated(k)
            scores = q @ k.T / np.sqrt(key_size)
            if config.position_type == "alibi" and is_relative:
                n = np.arange(len(x))
                scores = scores - 2 ** (-8 * (head + 1) / config.n_heads) * abs(n[:, None] - n)
            weights = np.exp(scores) * attn_mask
            weights /= weights.sum(1, keepdims=True)
            weights_by_head[head] = weights
            outputs.append(weights @ v)
        return linear(np.concatenate(outputs, 1), f"{name}.out_proj")

    def sublayer(x, name, function, *arguments):
        norm_name = f"{name}_residual.norm"
        if config.norm_placement == "pre":
            return x + function(norm(x, norm_name), name, *arguments)
        return norm(x + function(x, name, *arguments), norm_name)

    def attention_over(x, name, attn_mask, weights_by_head, memory=None):
        return attend(x, x if memory is None else memory, name, attn_mask, weights_by_head)

    def feed_forward(x, name):
        up, gate = linear(x, f"{name}.up_proj"), GATES[config.activation]
        is_gated = config.activation == "swiglu"
        hidden = gate(linear(x, f"{name}.gate_proj")) * up if is_gated else gate(up)
        return linear(hidden, f"{name}.down_proj")

    logits = []
    for row, (source, decoder_input) in enumerate(
        zip(source_BS.tolist(), decoder_input_BT.tolist(), strict=True)
    ):
        is_token = np.array(source)[None, :] != 0
        x = embed(source, "source_embedding")
        for i in range(config.n_layers):
            layer, weights = f"encoder_layers.{i}", attention["encoder"][i][row]
            x = sublayer(x, f"{layer}.self_attn", attention_over, is_token, weights)
            x = sublayer(x, f"{layer}.feed_forward", feed_forward)
        memory = norm(x, "encoder_norm") if config.norm_placement == "pre" else x
        causal_mask = np.tril(np.ones((len(decoder_input), len(decoder_input))))
        y = embed(decoder_input, "target_embedding")
        for i in range(config.n_layers):
            layer, weights = f"decoder_layers.{i}", attention["decoder"][i][row]
            y = sublayer(y, f"{layer}.self_attn", attention_over, causal_mask, weights)
            weights = attention["cross"][i][row]
            y = sublayer(y, f"{layer}.cross_attn", attention_over, is_token, weights, memory)
            y = sublayer(y, f"{layer}.feed_forward", feed_forward)
        y = norm(y, "decoder_norm") if config.norm_placement == "pre" else y
        logits.append(linear(y, "output_proj"))
    return attention, logits
