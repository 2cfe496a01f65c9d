// The models of playground/models in plain JavaScript, built from the files of a checkpoint. They
// compute logits, attention weights and generated tokens, with components switched off at will.
// Letters: S source, T target, W source and target in one sequence, D d_model, V vocabulary.
import { KeyValueCache } from "./attention.js";
import { resolveConfig } from "./config.js";
import { ForwardPass } from "./forward_pass.js";
import { InputEmbedding, Layer } from "./layers.js";
import { Linear, Norm, requireTensor } from "./linear.js";
import { EOS, SOS } from "./vocabulary.js";

/** @typedef {import("./config.js").Config} Config */
/** @typedef {import("./forward_pass.js").Ablation} Ablation */
/** @typedef {import("./safetensors.js").Tensors} Tensors */
/** @typedef {import("./attention.js").KeysAndValues} KeysAndValues */
/** @typedef {{ tokens: number[], probabilities: Float32Array[] }} Output */

/**
 * Build the model of an architecture. It throws a RangeError for one that the browser lacks.
 * @param {string} architecture @param {any} settings of the model, all of them
 * @param {Tensors} tensors @returns {Model}
 */
export function buildModel(architecture, settings, tensors) {
  const ModelClass = MODELS[architecture];
  if (!ModelClass) throw new RangeError(`the browser cannot run the architecture ${architecture}`);
  return new ModelClass(resolveConfig(settings), tensors);
}

/** What all architectures share. A source ends with EOS, a decoder input begins with SOS. */
export class Model {
  /** @param {Config} config @param {Tensors} tensors @param {string} embedding of the target */
  constructor(config, tensors, embedding) {
    this.config = config;
    this.output_proj = new Linear(
      tensors["output_proj.weight"] ??
        requireTensor(tensors, `${embedding}.token_embedding.weight`),
      tensors["output_proj.bias"]?.data,
    );
    /** The kinds of heads. @type {string[]} */
    this.kinds = [];
  }

  /** @param {Tensors} tensors @param {string} name @param {"encoder" | "decoder"} kind */
  buildLayers(tensors, name, kind) {
    const { config } = this;
    return Array.from(
      { length: config.n_layers },
      (_, index) => new Layer(config, tensors, `${name}.${index}`, kind, index),
    );
  }

  /** @param {Layer[]} layers @param {number} nPositions */
  newCache(layers, nPositions) {
    return layers.map(() => new KeyValueCache(this.config, nPositions));
  }

  /** List every head and feed-forward block. @returns {import("./forward_pass.js").Component[]} */
  components() {
    const { n_layers, n_heads } = this.config,
      count = (/** @type {number} */ n) => [...Array(n).keys()];
    return this.kinds.flatMap((kind) =>
      count(n_layers).flatMap((layer) => [
        ...count(n_heads).map((head) => ({ kind, layer, head })),
        ...(kind === "cross" ? [] : [{ kind: `${kind} feed-forward`, layer, head: null }]),
      ]),
    );
  }

  /**
   * Run the model on a source and the target so far; return what the pass recorded as well.
   * @param {number[]} source ends with EOS @param {number[]} decoderInput begins with SOS
   * @param {Ablation[]} [ablations]
   */
  forward(source, decoderInput, ablations) {
    const pass = new ForwardPass(this.config, ablations);
    return { logits_TV: this.targetLogits(source, decoderInput, pass), pass };
  }

  /**
   * Return the logits (TV) of the token after each token of the decoder's input.
   * @param {number[]} _source @param {number[]} _decoderInput @param {ForwardPass} _pass
   * @returns {Float32Array}
   */
  targetLogits(_source, _decoderInput, _pass) {
    throw new Error("abstract");
  }

  /**
   * Return a function that takes the last token and returns the logits (V) of the next one.
   * @param {number[]} _source @param {number} _maxTokens @param {ForwardPass} _pass
   * @returns {(token: number) => Float32Array}
   */
  startDecoding(_source, _maxTokens, _pass) {
    throw new Error("abstract");
  }

  /**
   * Write the most likely token at each step, up to EOS or `maxTokens` tokens.
   * @param {number[]} source ends with EOS @param {number} maxTokens
   * @param {Ablation[]} [ablations] @returns {Output}
   */
  generate(source, maxTokens, ablations) {
    const next = this.startDecoding(source, maxTokens, new ForwardPass(this.config, ablations)),
      output = /** @type {Output} */ ({ tokens: [], probabilities: [] });
    while (output.tokens.length < maxTokens && output.tokens.at(-1) !== EOS) {
      const logits_V = next(output.tokens.at(-1) ?? SOS);
      output.tokens.push(argmax(logits_V));
      output.probabilities.push(softmax(logits_V));
    }
    return output;
  }
}

/** The encoder-decoder (Vaswani et al. 2017). */
export class Transformer extends Model {
  /** @param {Config} config @param {Tensors} tensors */
  constructor(config, tensors) {
    super(config, tensors, "target_embedding");
    const { max_positions } = config;
    this.kinds = ["encoder", "decoder", "cross"];
    this.source_embedding = new InputEmbedding(
      config,
      tensors,
      "source_embedding",
      "source",
      max_positions,
    );
    this.target_embedding = new InputEmbedding(
      config,
      tensors,
      "target_embedding",
      "target",
      max_positions,
    );
    this.encoder_layers = this.buildLayers(tensors, "encoder_layers", "encoder");
    this.decoder_layers = this.buildLayers(tensors, "decoder_layers", "decoder");
    this.encoder_norm = new Norm(config, tensors, "encoder_norm");
    this.decoder_norm = new Norm(config, tensors, "decoder_norm");
  }

  /**
   * Return the keys and values of the encoder's output for each decoder layer.
   * @param {number[]} source @param {ForwardPass} pass
   */
  encode(source, pass) {
    let x_SD = /** @type {Float32Array} */ (this.source_embedding.forward(source, pass));
    for (const layer of this.encoder_layers) x_SD = layer.forward(x_SD, pass, source.length);
    const memory_SD = this.encoder_norm.forward(x_SD);
    return this.decoder_layers.map(({ cross_attn }) =>
      /** @type {import("./attention.js").MultiHeadAttention} */ (cross_attn).projectKeysAndValues(
        memory_SD,
      ),
    );
  }

  /**
   * Return the logits (TV) after target tokens; with a cache these are the new ones.
   * @param {number[]} target @param {KeysAndValues[]} memory @param {number} sourceLength
   * @param {ForwardPass} pass @param {KeyValueCache[] | null} [cache]
   */
  decode(target, memory, sourceLength, pass, cache = null) {
    pass.firstTarget = cache ? cache[0].length : 0;
    let x_TD = /** @type {Float32Array} */ (
      this.target_embedding.forward(target, pass, pass.firstTarget)
    );
    this.decoder_layers.forEach((layer, i) => {
      x_TD = layer.forward(x_TD, pass, sourceLength, memory[i], cache?.[i]);
    });
    return this.output_proj.forward(this.decoder_norm.forward(x_TD));
  }

  /** @override @type {Model["targetLogits"]} */
  targetLogits(source, decoderInput, pass) {
    return this.decode(decoderInput, this.encode(source, pass), source.length, pass);
  }

  /** @override @type {Model["startDecoding"]} */
  startDecoding(source, maxTokens, pass) {
    const memory = this.encode(source, pass),
      cache = this.newCache(this.decoder_layers, maxTokens);
    return (token) => this.decode([token], memory, source.length, pass, cache);
  }
}

/** One stack, without a memory. */
class SingleStack extends Model {
  /**
   * @param {Config} config @param {Tensors} tensors @param {"encoder" | "decoder"} kind
   * @param {number} nPositions
   */
  constructor(config, tensors, kind, nPositions) {
    super(config, tensors, "embedding");
    this.kinds = [kind];
    this.embedding = new InputEmbedding(config, tensors, "embedding", "target", nPositions);
    this.layers = this.buildLayers(tensors, "layers", kind);
    this.norm = new Norm(config, tensors, "norm");
  }

  /**
   * Return the logits (WV) at each token.
   * @param {number[]} tokens @param {ForwardPass} pass
   * @param {number} nKeys that get attention, without a causal mask
   * @param {KeyValueCache[] | null} [cache]
   */
  logits(tokens, pass, nKeys, cache = null) {
    let x_WD = /** @type {Float32Array} */ (
      this.embedding.forward(tokens, pass, cache ? cache[0].length : 0)
    );
    this.layers.forEach((layer, i) => {
      x_WD = layer.forward(x_WD, pass, nKeys, null, cache?.[i]);
    });
    return this.output_proj.forward(this.norm.forward(x_WD));
  }
}

/** A causal stack on source, EOS, target; the EOS of the source takes the place of SOS. */
export class DecoderOnly extends SingleStack {
  /** @param {Config} config @param {Tensors} tensors */
  constructor(config, tensors) {
    super(config, tensors, "decoder", 2 * config.max_positions);
  }

  /** @override @type {Model["targetLogits"]} */
  targetLogits(source, decoderInput, pass) {
    const logits_WV = this.logits([...source, ...decoderInput.slice(1)], pass, 0);
    return logits_WV.slice((source.length - 1) * this.config.target_vocab_size);
  }

  /** @override @type {Model["startDecoding"]} */
  startDecoding(source, maxTokens, pass) {
    const cache = this.newCache(this.layers, source.length + maxTokens);
    return (token) =>
      this.logits(cache[0].length ? [token] : source, pass, 0, cache).slice(
        -this.config.target_vocab_size,
      );
  }
}

/** A bidirectional stack on the source and blanks (SOS), which get no attention. */
export class EncoderOnly extends SingleStack {
  /** @param {Config} config @param {Tensors} tensors */
  constructor(config, tensors) {
    super(config, tensors, "encoder", config.max_positions);
  }

  /** @override @type {Model["targetLogits"]} */
  targetLogits(source, { length }, pass) {
    const nBlanks = Math.max(0, length - source.length),
      logits_WV = this.logits([...source, ...Array(nBlanks).fill(SOS)], pass, source.length);
    return logits_WV.slice(0, length * this.config.target_vocab_size);
  }

  /** @override @type {Model["startDecoding"]} */
  startDecoding(source, maxTokens, pass) {
    const logits_TV = this.targetLogits(source, Array(maxTokens).fill(SOS), pass),
      rows = rowsOf(logits_TV, this.config.target_vocab_size);
    let step = 0;
    return () => rows[step++];
  }
}

/** @type {Record<string, new (config: Config, tensors: Tensors) => Model>} */
const MODELS = {
  transformer: Transformer,
  "decoder-only": DecoderOnly,
  "encoder-only": EncoderOnly,
};

/** Return the rows of a matrix. @param {Float32Array} x_NV @param {number} width */
export const rowsOf = (x_NV, width) =>
  Array.from({ length: x_NV.length / width }, (_, n) => x_NV.subarray(n * width, (n + 1) * width));

/** Return the index of the largest value, the first of equal ones. @param {Float32Array} values */
export function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/** Return the probabilities of the tokens. @param {Float32Array} logits_V */
export function softmax(logits_V) {
  const largest = logits_V[argmax(logits_V)],
    exps_V = logits_V.map((logit) => Math.exp(logit - largest)),
    sum = exps_V.reduce((a, b) => a + b, 0);
  return exps_V.map((value) => value / sum);
}
