"""A reference transformer in numpy, in double precision, without code of the playground.

It computes each head of each sequence separately.
"""

import numpy as np


def reference_attention(model, source_BS, decoder_input_BT):
    """Return attention weights QM as lists [kind][layer][row][head], and logits TV by row."""
    w = {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}
    config = model.config
    d, width = config.d_model, config.d_model // config.n_heads
    attention = {
        kind: [[[None] * config.n_heads for _ in source_BS] for _ in range(config.n_layers)]
        for kind in ("encoder", "decoder", "cross")
    }

    def linear(x, name):
        y = x @ w[f"{name}.weight"].T
        return y + w[f"{name}.bias"] if f"{name}.bias" in w else y

    def norm(x, name):
        centered = x - x.mean(-1, keepdims=True)
        return (
            centered
            / np.sqrt((x**2).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2 + 1e-5)
            * w[f"{name}.weight"]
            + w[f"{name}.bias"]
        )

    def positions(name, n):
        if config.position_type == "learned":
            return w[f"{name}.position_embedding"][:n]
        i = np.arange(d)
        angle = np.arange(n)[:, None] / 10_000 ** ((i // 2 * 2) / d)
        return config.sinusoidal_scale * np.where(i % 2 == 0, np.sin(angle), np.cos(angle))

    def embed(tokens, name):
        table = w.get(
            f"{name}.token_embedding.weight", w["target_embedding.token_embedding.weight"]
        )
        return table[tokens] * np.sqrt(d) + positions(name, len(tokens))

    def attend(x, memory, name, attn_mask, weights_by_head):
        query = linear(x, f"{name}.q_proj")
        key, value = linear(memory, f"{name}.k_proj"), linear(memory, f"{name}.v_proj")
        outputs = []
        for head in range(config.n_heads):
            head_columns = slice(head * width, (head + 1) * width)
            q, k, v = (each[:, head_columns] for each in (query, key, value))
            weights = np.exp(q @ k.T / np.sqrt(width)) * attn_mask
            weights /= weights.sum(1, keepdims=True)
            weights_by_head[head] = weights
            outputs.append(weights @ v)
        return linear(np.concatenate(outputs, 1), f"{name}.out_proj")

    def attention_over(name, attn_mask, weights_by_head, memory=None):
        return lambda x: attend(
            x, x if memory is None else memory, name, attn_mask, weights_by_head
        )

    def sublayer(x, name, function):
        if config.norm_placement == "pre":
            return x + function(norm(x, f"{name}.norm"))
        return norm(x + function(x), f"{name}.norm")

    def feed_forward(layer):
        return lambda x: linear(
            np.maximum(linear(x, f"{layer}.feed_forward.up_proj"), 0),
            f"{layer}.feed_forward.down_proj",
        )

    logits = []
    for row, (source, decoder_input) in enumerate(
        zip(source_BS.tolist(), decoder_input_BT.tolist(), strict=True)
    ):
        is_token = np.array(source)[None, :] != 0
        x = embed(source, "source_embedding")
        for i in range(config.n_layers):
            layer, weights_by_head = f"encoder_layers.{i}", attention["encoder"][i][row]
            x = sublayer(
                x,
                f"{layer}.self_attn_residual",
                attention_over(f"{layer}.self_attn", is_token, weights_by_head),
            )
            x = sublayer(x, f"{layer}.feed_forward_residual", feed_forward(layer))
        memory = norm(x, "encoder_norm") if config.norm_placement == "pre" else x
        causal_mask = np.tril(np.ones((len(decoder_input), len(decoder_input))))
        y = embed(decoder_input, "target_embedding")
        for i in range(config.n_layers):
            layer, self_weights, cross_weights = (
                f"decoder_layers.{i}",
                attention["decoder"][i][row],
                attention["cross"][i][row],
            )
            y = sublayer(
                y,
                f"{layer}.self_attn_residual",
                attention_over(f"{layer}.self_attn", causal_mask, self_weights),
            )
            y = sublayer(
                y,
                f"{layer}.cross_attn_residual",
                attention_over(f"{layer}.cross_attn", is_token, cross_weights, memory),
            )
            y = sublayer(y, f"{layer}.feed_forward_residual", feed_forward(layer))
        logits.append(
            linear(norm(y, "decoder_norm") if config.norm_placement == "pre" else y, "output_proj")
        )
    return attention, logits
