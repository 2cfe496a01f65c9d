"""The transformer once more, from its weights alone: numpy in double precision, head by head, row by row, no code of ours."""

import numpy as np


def attention_by_hand(model, source_BS, given_BT):
    """Attention of every kind as nested lists [kind][layer][row][head] of matrices QM, and logits [row] TV."""
    w = {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}
    config = model.config
    d, width = config.d_model, config.d_model // config.n_heads
    found = {
        kind: [[[None] * config.n_heads for _ in source_BS] for _ in range(config.n_layers)] for kind in ("encoder", "decoder", "cross")
    }

    def linear(x, name):
        y = x @ w[f"{name}.weight"].T
        return y + w[f"{name}.bias"] if f"{name}.bias" in w else y

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        return (
            centred / np.sqrt((x**2).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2 + 1e-5) * w[f"{name}.weight"]
            + w[f"{name}.bias"]
        )

    def positions(name, n):
        if config.positions == "learned":
            return w[f"{name}.positions"][:n]
        i = np.arange(d)
        angle = np.arange(n)[:, None] / 10_000 ** ((i // 2 * 2) / d)
        return config.position_scale * np.where(i % 2 == 0, np.sin(angle), np.cos(angle))

    def embed(tokens, name):
        table = w.get(f"{name}.tokens.weight", w["target_embedding.tokens.weight"])
        return table[tokens] * np.sqrt(d) + positions(name, len(tokens))

    def attend(x, memory, name, allowed, keep):
        query, key_value = linear(x, f"{name}.query"), linear(memory, f"{name}.key_value")
        mixes = []
        for head in range(config.n_heads):
            mine = slice(head * width, (head + 1) * width)
            q, k, v = query[:, mine], key_value[:, :d][:, mine], key_value[:, d:][:, mine]
            weights = np.exp(q @ k.T / np.sqrt(width)) * allowed
            weights /= weights.sum(1, keepdims=True)
            keep[head] = weights
            mixes.append(weights @ v)
        return linear(np.concatenate(mixes, 1), f"{name}.output")

    def sublayer(x, name, result):
        if config.norm == "pre":
            return x + result(norm(x, f"{name}.norm"))
        return norm(x + result(x), f"{name}.norm")

    def feed_forward(layer):
        return lambda x: linear(np.maximum(linear(x, f"{layer}.feed_forward.widen"), 0), f"{layer}.feed_forward.narrow")

    logits = []
    for row, (source, given) in enumerate(zip(source_BS.tolist(), given_BT.tolist(), strict=True)):
        real = np.array(source)[None, :] != 0
        x = embed(source, "source_embedding")
        for i in range(config.n_layers):
            layer, keep = f"encoder_layers.{i}", found["encoder"][i][row]
            x = sublayer(x, f"{layer}.around_self_attention", lambda y: attend(y, y, f"{layer}.self_attention", real, keep))  # noqa: B023
            x = sublayer(x, f"{layer}.around_feed_forward", feed_forward(layer))
        memory = norm(x, "encoder_norm") if config.norm == "pre" else x
        past = np.tril(np.ones((len(given), len(given))))
        y = embed(given, "target_embedding")
        for i in range(config.n_layers):
            layer, own, across = f"decoder_layers.{i}", found["decoder"][i][row], found["cross"][i][row]
            y = sublayer(y, f"{layer}.around_self_attention", lambda z: attend(z, z, f"{layer}.self_attention", past, own))  # noqa: B023
            y = sublayer(y, f"{layer}.around_cross_attention", lambda z: attend(z, memory, f"{layer}.cross_attention", real, across))  # noqa: B023
            y = sublayer(y, f"{layer}.around_feed_forward", feed_forward(layer))
        logits.append(linear(norm(y, "decoder_norm") if config.norm == "pre" else y, "output"))
    return found, logits
