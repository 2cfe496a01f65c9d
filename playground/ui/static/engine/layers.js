// The layer of all stacks, and the embeddings before them (models/layers.py, embeddings.py).
import { MultiHeadAttention } from "./attention.js";
import { loadFeedForward, loadNorm, requireTensor } from "./linear.js";
import { sinusoidalPositions } from "./position_encoding.js";
/** @import { ForwardPass } from "./forward_pass.js" */
/** @import { Config, Forward, ForwardTokens, Module, Tensors } from "./types.js" */

/** Self-attention, cross-attention if there is a memory, then the feed-forward network. */
export class Layer {
  /**
   * @param {Config} config @param {Tensors} tensors @param {string} name such as decoder_layers.0
   * @param {string} side @param {number} index
   */
  constructor(config, tensors, name, side, index) {
    this.name = name;
    this.side = side;
    this.index = index;
    this.isPreNorm = config.norm_placement === "pre";
    this.self_attn = new MultiHeadAttention(config, tensors, `${name}.self_attn`, side, index);
    this.cross_attn = tensors[`${name}.cross_attn.q_proj.weight`]
      ? new MultiHeadAttention(config, tensors, `${name}.cross_attn`, "cross", index)
      : null;
    this.feed_forward = loadFeedForward(config, tensors, `${name}.feed_forward`);
    this.norms = Object.fromEntries(
      ["self_attn", "cross_attn", "feed_forward"].map((part) => [
        part,
        loadNorm(config, tensors, `${name}.${part}_residual.norm`),
      ]),
    );
  }

  /** @type {Forward} */
  forward(x_ND, pass) {
    const { side, index, self_attn, cross_attn } = this,
      { memory } = pass;
    let y_ND = this.addSublayer("self_attn", x_ND, pass, (input_ND) => {
      const added = self_attn.projectKeysAndValues(input_ND, pass.first),
        all = side === "decoder" ? pass.extendCache(index, added) : added;
      return self_attn.forward(input_ND, all, pass);
    });
    if (cross_attn && memory)
      y_ND = this.addSublayer("cross_attn", y_ND, pass, (input_ND) =>
        cross_attn.forward(input_ND, memory[index], pass),
      );
    return this.addSublayer("feed_forward", y_ND, pass, (input_ND) => {
      const output_ND = this.feed_forward(input_ND),
        component = { kind: `${side} feed-forward`, layer: index, head: null };
      pass.replace(component, output_ND, pass.config.d_model);
      return output_ND;
    });
  }

  /**
   * Add a sublayer to the residual stream: pre-norm x + f(norm(x)), post-norm norm(x + f(x)).
   * @param {string} part @param {Float32Array} x_ND @param {ForwardPass} pass
   * @param {Module} sublayer
   */
  addSublayer(part, x_ND, pass, sublayer) {
    const norm = this.norms[part],
      output_ND = sublayer(this.isPreNorm ? norm(x_ND) : x_ND),
      sum_ND = x_ND.map((value, i) => value + output_ND[i]);
    pass.recordContribution(`${this.name}.${part}`, output_ND, x_ND);
    return this.isPreNorm ? sum_ND : norm(sum_ND);
  }
}

/** Token embeddings times sqrt(d_model), plus position vectors. */
export class InputEmbedding {
  /** @param {Config} config @param {Tensors} tensors @param {string} name */
  constructor(config, tensors, name) {
    this.config = config;
    this.side = name === "source_embedding" ? "source" : "target";
    // A table that source and target share is stored under its first name.
    this.tokens =
      tensors[`${name}.token_embedding.weight`] ??
      requireTensor(tensors, "source_embedding.token_embedding.weight");
    this.positions_PD =
      config.position_type === "sinusoidal"
        ? sinusoidalPositions(config)
        : tensors[`${name}.position_embedding`]?.data;
    this.component = { kind: `${this.side} positions`, layer: null, head: null };
  }

  /** Return the vectors (ND) of tokens; throw a RangeError for too many. @type {ForwardTokens} */
  forward(tokens, pass) {
    const { d_model: D, scale_embeddings, nPositions } = this.config,
      scale = scale_embeddings ? Math.sqrt(D) : 1,
      x_ND = new Float32Array(tokens.length * D);
    if (pass.first + tokens.length > nPositions)
      throw new RangeError(`the model has positions for ${nPositions} tokens`);
    if (this.positions_PD) {
      for (let n = 0; n < tokens.length; n++) {
        const start = this.rowOf(pass.first + n, tokens.length) * D;
        x_ND.set(this.positions_PD.subarray(start, start + D), n * D);
      }
      pass.replace(this.component, x_ND, D);
    }
    for (let i = 0; i < x_ND.length; i++)
      x_ND[i] += this.tokens.data[tokens[Math.floor(i / D)] * D + (i % D)] * scale;
    return x_ND;
  }

  /** Return the row of a position in the table. @param {number} position @param {number} length */
  rowOf(position, length) {
    const { position_type, randomized_range, max_positions } = this.config;
    if (position_type === "learned-from-end" && this.side === "source")
      return length - 1 - position;
    if (position_type === "randomized")
      return Math.floor((position * randomized_range) / max_positions);
    return position;
  }
}
