// The layer of all stacks, and the embeddings before them (models/layers.py, embeddings.py).
import { MultiHeadAttention } from "./attention.js";
import { FeedForward, Norm, requireTensor } from "./linear.js";
import { positionEncoding, sinusoidalPositions } from "./position_encoding.js";

/** @typedef {import("./attention.js").KeysAndValues} KeysAndValues */
/** @typedef {import("./attention.js").KeyValueCache} KeyValueCache */
/** @typedef {import("./config.js").Config} Config */
/** @typedef {import("./forward_pass.js").ForwardPass} ForwardPass */
/** @typedef {import("./safetensors.js").Tensors} Tensors */

/** Self-attention, cross-attention if there is a memory, then the feed-forward network. */
export class Layer {
  /**
   * @param {Config} config @param {Tensors} tensors
   * @param {string} name of the layer, such as decoder_layers.0 @param {"encoder" | "decoder"} kind
   * @param {number} index
   */
  constructor(config, tensors, name, kind, index) {
    const attention = `${name}.self_attn`;
    this.name = name;
    this.kind = kind;
    this.index = index;
    this.isCausal = kind === "decoder";
    this.isPreNorm = config.norm_placement === "pre";
    this.self_attn = new MultiHeadAttention(
      config,
      tensors,
      attention,
      positionEncoding(config, tensors, attention, this.isCausal),
    );
    this.cross_attn = tensors[`${name}.cross_attn.q_proj.weight`]
      ? new MultiHeadAttention(config, tensors, `${name}.cross_attn`)
      : null;
    this.feed_forward = new FeedForward(config, tensors, `${name}.feed_forward`);
    this.norms = Object.fromEntries(
      ["self_attn", "cross_attn", "feed_forward"].map((sublayer) => [
        sublayer,
        new Norm(config, tensors, `${name}.${sublayer}_residual.norm`),
      ]),
    );
  }

  /**
   * Return the output (ND). Without a causal mask every query attends to the first `nKeys` keys.
   * @param {Float32Array} x_ND @param {ForwardPass} pass @param {number} nKeys
   * @param {KeysAndValues | null} [memory]
   * @param {KeyValueCache | null} [cache] of earlier positions; x_ND has the new ones
   */
  forward(x_ND, pass, nKeys, memory = null, cache = null) {
    const first = cache ? cache.length : 0,
      { kind, index, cross_attn } = this;
    let y_ND = this.addSublayer("self_attn", x_ND, pass, (input_ND) => {
      const own = this.self_attn.projectKeysAndValues(input_ND, first);
      return this.self_attn.forward(
        input_ND,
        cache ? cache.append(own) : own,
        (query) => (this.isCausal ? first + query + 1 : nKeys),
        pass,
        kind,
        index,
      );
    });
    if (cross_attn && memory)
      y_ND = this.addSublayer("cross_attn", y_ND, pass, (input_ND) =>
        cross_attn.forward(input_ND, memory, () => nKeys, pass, "cross", index),
      );
    return this.addSublayer("feed_forward", y_ND, pass, (input_ND) =>
      pass.replace(
        { kind: `${kind} feed-forward`, layer: index, head: null },
        this.feed_forward.forward(input_ND),
        first,
      ),
    );
  }

  /**
   * Add a sublayer to the residual stream: pre-norm x + f(norm(x)), post-norm norm(x + f(x)).
   * @param {string} part @param {Float32Array} x_ND @param {ForwardPass} pass
   * @param {(input_ND: Float32Array) => Float32Array} sublayer
   */
  addSublayer(part, x_ND, pass, sublayer) {
    const norm = this.norms[part],
      output_ND = sublayer(this.isPreNorm ? norm.forward(x_ND) : x_ND),
      sum_ND = x_ND.map((value, i) => value + output_ND[i]);
    pass.recordContribution(`${this.name}.${part}`, output_ND, x_ND);
    return this.isPreNorm ? sum_ND : norm.forward(sum_ND);
  }
}

/** Token embeddings times sqrt(d_model), plus position vectors. */
export class InputEmbedding {
  /**
   * @param {Config} config @param {Tensors} tensors @param {string} name
   * @param {"source" | "target"} side @param {number} nPositions
   */
  constructor(config, tensors, name, side, nPositions) {
    this.config = config;
    this.side = side;
    this.nPositions = nPositions;
    this.tokens_VD = requireTensor(tensors, `${name}.token_embedding.weight`).data;
    this.positions_PD =
      config.position_type === "sinusoidal"
        ? sinusoidalPositions(nPositions, config.d_model, config.sinusoidal_scale)
        : tensors[`${name}.position_embedding`]?.data;
  }

  /**
   * Return the vectors (ND) of tokens. It throws a RangeError for more than the model has
   * positions.
   * @param {number[]} tokens @param {ForwardPass} pass
   */
  forward(tokens, pass, firstPosition = 0) {
    const { d_model: D, scale_embeddings } = this.config,
      scale = scale_embeddings ? Math.sqrt(D) : 1;
    if (firstPosition + tokens.length > this.nPositions)
      throw new RangeError(`the model has positions for ${this.nPositions} tokens`);
    const x_ND = new Float32Array(tokens.length * D),
      positions_ND = this.positionVectors(tokens.length, pass, firstPosition);
    for (let i = 0; i < x_ND.length; i++)
      x_ND[i] =
        this.tokens_VD[tokens[Math.floor(i / D)] * D + (i % D)] * scale + (positions_ND?.[i] ?? 0);
    return x_ND;
  }

  /** @param {number} length @param {ForwardPass} pass @param {number} first */
  positionVectors(length, pass, first) {
    const { positions_PD } = this,
      { d_model: D } = this.config;
    if (!positions_PD) return null;
    const vectors_ND = Float32Array.from({ length: length * D }, (_, i) => {
      const position = this.positionId(Math.floor(i / D), first, length);
      return positions_PD[position * D + (i % D)];
    });
    return pass.replace(
      { kind: `${this.side} positions`, layer: null, head: null },
      vectors_ND,
      first,
    );
  }

  /** @param {number} index @param {number} first @param {number} length */
  positionId(index, first, length) {
    const { position_type, randomized_range, max_positions } = this.config;
    if (position_type === "learned-from-end" && this.side === "source") return length - 1 - index;
    if (position_type === "randomized")
      return Math.floor(((first + index) * randomized_range) / max_positions);
    return first + index;
  }
}
