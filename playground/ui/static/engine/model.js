// The models of playground/models in plain JavaScript, built from the files of a checkpoint. They
// compute logits, attention weights and generated tokens, with components switched off at will.
// Letters: S source, T target, W source and target in one sequence, D d_model, V vocabulary.
import { ForwardPass } from "./forward_pass.js";
import { InputEmbedding, Layer } from "./layers.js";
import { linear, loadNorm, softmax } from "./linear.js";
import { EOS, SOS } from "./tasks.js";
/** @import { KeysAndValues } from "./attention.js" */
/** @import { Ablation, Component } from "./forward_pass.js" */
/** @import { Tensors } from "./safetensors.js" */

/**
 * The settings of a model, as config.json of a checkpoint has them (models/stack_config.py), and
 * the sizes that follow from them.
 * @typedef {{
 *   d_model: number, n_heads: number, n_kv_heads: number, n_layers: number,
 *   keySize: number, valueSize: number, activation: string, norm_placement: string,
 *   norm_type: string, position_type: string, sinusoidal_scale: number,
 *   scale_embeddings: boolean, max_positions: number, nPositions: number,
 *   randomized_range: number, target_vocab_size: number,
 * }} Config
 */

/**
 * Build the model of an architecture. It throws a RangeError for one that the browser lacks.
 * @param {string} architecture @param {any} settings of the model, all of them
 * @param {Tensors} tensors @returns {Model}
 */
export function buildModel(architecture, settings, tensors) {
  const ModelClass = MODELS[architecture];
  if (!ModelClass) throw new RangeError(`the browser cannot run the architecture ${architecture}`);
  const headSize = Math.floor(settings.d_model / settings.n_heads),
    // The setting 0 stands for a default.
    config = {
      ...settings,
      n_kv_heads: settings.n_kv_heads || settings.n_heads,
      keySize: settings.d_k || headSize,
      valueSize: settings.d_v || headSize,
      randomized_range: settings.randomized_range || 4 * settings.max_positions,
      nPositions: ModelClass.nSequences * settings.max_positions,
    };
  return new ModelClass(config, tensors);
}

/** Embeddings, layers and the last norm. */
class Stack {
  /**
   * @param {Config} config @param {Tensors} tensors @param {"encoder" | "decoder"} kind
   * @param {string} embedding name of it @param {string} [prefix] of the names of layers and norm
   */
  constructor(config, tensors, kind, embedding, prefix = "") {
    this.embedding = new InputEmbedding(config, tensors, embedding);
    this.layers = count(config.n_layers).map(
      (index) => new Layer(config, tensors, `${prefix}layers.${index}`, kind, index),
    );
    this.norm = loadNorm(config, tensors, `${prefix}norm`);
  }

  /**
   * Return the vectors (ND) of tokens, the next ones of a pass.
   * @param {number[]} tokens @param {ForwardPass} pass @param {KeysAndValues[] | null} memory
   */
  forward(tokens, pass, memory = null) {
    let x_ND = /** @type {Float32Array} */ (this.embedding.forward(tokens, pass));
    for (const layer of this.layers) x_ND = layer.forward(x_ND, pass, memory);
    return this.norm(x_ND);
  }
}

/** What all architectures share. A source ends with EOS, a decoder input begins with SOS. */
export class Model {
  static nSequences = 1; // of max_positions tokens in a stack

  /**
   * @param {Config} config @param {Tensors} tensors @param {Stack} stack that writes the output
   * @param {string[]} kinds of heads
   */
  constructor(config, tensors, stack, kinds) {
    this.config = config;
    this.stack = stack;
    this.kinds = kinds;
    this.output_proj = linear(
      tensors["output_proj.weight"] ?? stack.embedding.tokens,
      tensors["output_proj.bias"],
    );
  }

  /** List every head and feed-forward block. @returns {Component[]} */
  components() {
    const { n_layers, n_heads } = this.config;
    return this.kinds.flatMap((kind) =>
      count(n_layers).flatMap((layer) => [
        ...count(n_heads).map((head) => ({ kind, layer, head })),
        ...(kind === "cross" ? [] : [{ kind: `${kind} feed-forward`, layer, head: null }]),
      ]),
    );
  }

  /**
   * Return the keys and values of the memory for each layer; a single stack has none.
   * @param {ForwardPass} _pass @returns {KeysAndValues[] | null}
   */
  encode(_pass) {
    return null;
  }

  /**
   * Return a function that takes the next tokens of the decoder's input, and returns the logits
   * (TV) after each of them.
   * @param {ForwardPass} pass @param {number} _nTokens at most
   * @param {KeysAndValues[] | null} [memory]
   * @returns {(tokens: number[]) => Float32Array}
   */
  startDecoding(pass, _nTokens, memory = this.encode(pass)) {
    return (tokens) => this.logits(tokens, pass, memory);
  }

  /**
   * Return the logits (NV) after each of the next tokens of the stack.
   * @param {number[]} tokens @param {ForwardPass} pass @param {KeysAndValues[] | null} [memory]
   */
  logits(tokens, pass, memory) {
    const x_ND = this.stack.forward(tokens, pass, memory);
    pass.first += tokens.length;
    return this.output_proj(x_ND);
  }

  /**
   * Run the model on a source and the target so far; return what the pass recorded as well.
   * @param {number[]} source @param {number[]} decoderInput @param {Ablation[]} [ablations]
   */
  forward(source, decoderInput, ablations) {
    const pass = new ForwardPass(this.config, source, ablations),
      logits_TV = this.startDecoding(pass, decoderInput.length)(decoderInput);
    return { logits_TV, pass };
  }

  /**
   * Write the most likely token at each step, up to EOS or `maxTokens` tokens.
   * @param {number[]} source @param {number} maxTokens @param {Ablation[]} [ablations]
   */
  generate(source, maxTokens, ablations) {
    const pass = new ForwardPass(this.config, source, ablations),
      next = this.startDecoding(pass, maxTokens),
      tokens = /** @type {number[]} */ ([]),
      probabilities = /** @type {Float32Array[]} */ ([]);
    while (tokens.length < maxTokens && tokens.at(-1) !== EOS) {
      const probability_V = softmax(next([tokens.at(-1) ?? SOS]));
      tokens.push(argmax(probability_V));
      probabilities.push(probability_V);
    }
    return { tokens, probabilities };
  }
}

/** The encoder-decoder (Vaswani et al. 2017). */
class Transformer extends Model {
  /** @param {Config} config @param {Tensors} tensors */
  constructor(config, tensors) {
    const decoder = new Stack(config, tensors, "decoder", "target_embedding", "decoder_");
    super(config, tensors, decoder, ["encoder", "decoder", "cross"]);
    this.encoder = new Stack(config, tensors, "encoder", "source_embedding", "encoder_");
  }

  /** @override @param {ForwardPass} pass */
  encode(pass) {
    const memory_SD = this.encoder.forward(pass.source, pass);
    return this.stack.layers.flatMap(
      ({ cross_attn }) => cross_attn?.projectKeysAndValues(memory_SD, 0) ?? [],
    );
  }
}

/** A causal stack on source, EOS, target; the EOS of the source takes the place of SOS. */
class DecoderOnly extends Model {
  static nSequences = 2;

  /** @param {Config} config @param {Tensors} tensors */
  constructor(config, tensors) {
    super(config, tensors, new Stack(config, tensors, "decoder", "embedding"), ["decoder"]);
  }

  /** @override @type {Model["startDecoding"]} */
  startDecoding(pass) {
    return (tokens) => {
      const all = pass.first ? tokens : [...pass.source, ...tokens.slice(1)];
      return this.logits(all, pass).slice(-tokens.length * this.config.target_vocab_size);
    };
  }
}

/** A bidirectional stack on the source and blanks (SOS), which get no attention. */
class EncoderOnly extends Model {
  /** @param {Config} config @param {Tensors} tensors */
  constructor(config, tensors) {
    super(config, tensors, new Stack(config, tensors, "encoder", "embedding"), ["encoder"]);
  }

  /** @override @type {Model["startDecoding"]} */
  startDecoding(pass, nTokens) {
    const { source } = pass,
      nBlanks = Math.max(0, nTokens - source.length),
      V = this.config.target_vocab_size,
      logits_WV = this.logits([...source, ...Array(nBlanks).fill(SOS)], pass);
    let n = 0;
    return (tokens) => {
      n += tokens.length;
      return logits_WV.slice((n - tokens.length) * V, n * V);
    };
  }
}

const MODELS = /** @type {Record<string, any>} */ ({
  transformer: Transformer,
  "decoder-only": DecoderOnly,
  "encoder-only": EncoderOnly,
});

const count = (/** @type {number} */ n) => [...Array(n).keys()];

/** Return the index of the largest value, the first of equal ones. @param {Float32Array} values */
export function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}
