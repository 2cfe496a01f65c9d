// The models of playground/models in plain JavaScript, built from the files of a checkpoint. They
// compute logits, attention weights and generated tokens, with components switched off at will.
// Letters: S source, T target, W source and target in one sequence, V vocabulary.
import { ForwardPass } from "./forward_pass.js";
import { InputEmbedding, Layer } from "./layers.js";
import { linear, loadNorm } from "./linear.js";
import { EOS, SOS } from "./tasks.js";
/** @import { Ablation, Component, Config, ForwardTokens, Tensors } from "./types.js" */

/**
 * Build the model of an architecture. It throws a RangeError for one that the browser lacks.
 * @param {string} architecture @param {any} settings of the model, all of them
 * @param {Tensors} tensors
 */
export function buildModel(architecture, settings, tensors) {
  const ModelClass = MODELS[architecture];
  if (!ModelClass) throw new RangeError(`the browser cannot run the architecture ${architecture}`);
  const headSize = Math.floor(settings.d_model / settings.n_heads);
  return new ModelClass(
    {
      ...settings, // the setting 0 stands for a default
      n_kv_heads: settings.n_kv_heads || settings.n_heads,
      keySize: settings.d_k || headSize,
      valueSize: settings.d_v || headSize,
      randomized_range: settings.randomized_range || 4 * settings.max_positions,
      nPositions: ModelClass.nSequences * settings.max_positions,
    },
    tensors,
  );
}

/** Embeddings, layers and the last norm. */
class Stack {
  /**
   * @param {Config} config @param {Tensors} tensors @param {string} side
   * @param {string} embedding name of it @param {string} [prefix] of the names of layers and norm
   */
  constructor(config, tensors, side, embedding, prefix = "") {
    this.embedding = new InputEmbedding(config, tensors, embedding);
    this.layers = count(config.n_layers).map(
      (index) => new Layer(config, tensors, `${prefix}layers.${index}`, side, index),
    );
    this.norm = loadNorm(config, tensors, `${prefix}norm`);
  }

  /** Return the vectors (ND) of the next tokens. @type {ForwardTokens} */
  forward(tokens, pass) {
    let x_ND = this.embedding.forward(tokens, pass);
    for (const layer of this.layers) x_ND = layer.forward(x_ND, pass);
    return this.norm(x_ND);
  }
}

/** The encoder-decoder (Vaswani et al. 2017). Sources end with EOS, a target begins with SOS. */
export class Model {
  static nSequences = 1; // of max_positions tokens in a stack
  static kinds = ["encoder", "decoder", "cross"]; // of heads

  /** @param {Config} config @param {Tensors} tensors */
  constructor(config, tensors) {
    this.config = config;
    this.kinds = new.target.kinds;
    if (this.kinds.includes("cross")) {
      this.encoder = new Stack(config, tensors, "encoder", "source_embedding", "encoder_");
      this.stack = new Stack(config, tensors, "decoder", "target_embedding", "decoder_");
    } else this.stack = new Stack(config, tensors, this.kinds[0], "embedding");
    this.output_weight = tensors["output_proj.weight"] ?? this.stack.embedding.tokens;
    this.output_bias = tensors["output_proj.bias"];
  }

  /** List heads, blocks, and position vectors that are added. @returns {Component[]} */
  components() {
    const { n_layers, n_heads } = this.config,
      embeddings = [this.encoder, this.stack].flatMap((stack) => stack?.embedding ?? []);
    return [
      ...this.kinds.flatMap((kind) =>
        count(n_layers).flatMap((layer) => [
          ...count(n_heads).map((head) => ({ kind, layer, head })),
          ...(kind === "cross" ? [] : [{ kind: `${kind} feed-forward`, layer, head: null }]),
        ]),
      ),
      ...embeddings.filter((each) => each.positions_PD).map((each) => each.component),
    ];
  }

  /** Return the memory for each layer, if there is an encoder. @param {ForwardPass} pass */
  encode(pass) {
    const memory_SD = this.encoder?.forward(pass.source, pass);
    return this.stack.layers.flatMap(
      ({ cross_attn }) => (memory_SD && cross_attn?.projectKeysAndValues(memory_SD, 0)) ?? [],
    );
  }

  /** Return the logits (NV) after the next tokens. @type {ForwardTokens} */
  logits(tokens, pass) {
    const x_ND = this.stack.forward(tokens, pass);
    pass.first += tokens.length;
    return linear(x_ND, this.output_weight, this.output_bias);
  }

  /** Return the logits (TV) after the next tokens of the decoder's input. @type {ForwardTokens} */
  decode(tokens, pass) {
    pass.memory ??= this.encode(pass);
    return this.logits(tokens, pass);
  }

  /**
   * Run the model on a source and the target so far; return what the pass recorded as well.
   * @param {number[]} source @param {number[]} decoderInput @param {Ablation[]} [ablations]
   */
  forward(source, decoderInput, ablations) {
    const pass = new ForwardPass(this.config, source, decoderInput.length, ablations);
    return { logits_TV: this.decode(decoderInput, pass), pass };
  }

  /**
   * Write the most likely token at each step, up to EOS or `maxTokens` tokens.
   * @param {number[]} source @param {number} maxTokens @param {Ablation[]} [ablations]
   */
  generate(source, maxTokens, ablations) {
    const pass = new ForwardPass(this.config, source, maxTokens, ablations),
      tokens = /** @type {number[]} */ ([]);
    while (tokens.length < maxTokens && tokens.at(-1) !== EOS)
      tokens.push(argmax(this.decode([tokens.at(-1) ?? SOS], pass)));
    return tokens;
  }
}

/** A causal stack on source, EOS, target; the EOS of the source takes the place of SOS. */
class DecoderOnly extends Model {
  static nSequences = 2;
  static kinds = ["decoder"];

  /** @override @type {ForwardTokens} */
  decode(tokens, pass) {
    const all = pass.first ? tokens : [...pass.source, ...tokens.slice(1)];
    return this.logits(all, pass).slice(-tokens.length * this.config.target_vocab_size);
  }
}

/** A bidirectional stack on the source and blanks (SOS), which get no attention. */
class EncoderOnly extends Model {
  static kinds = ["encoder"];

  /** @override @type {ForwardTokens} */
  decode(tokens, pass) {
    const blanks = Array(Math.max(0, pass.maxTokens - pass.source.length)).fill(SOS),
      logits_WV = (pass.logits_WV ??= this.logits([...pass.source, ...blanks], pass)),
      size = tokens.length * this.config.target_vocab_size;
    pass.logits_WV = logits_WV.subarray(size);
    return logits_WV.subarray(0, size);
  }
}

/** @type {Record<string, typeof Model>} */
const MODELS = { transformer: Model, "decoder-only": DecoderOnly, "encoder-only": EncoderOnly };

const count = (/** @type {number} */ n) => [...Array(n).keys()];

/** Return the index of the largest value, the first of equal ones. @param {Float32Array} values */
export const argmax = (values) => values.indexOf(Math.max(...values));
