// The open model of the page, in its Worker: the output for a text with components switched off, in
// the form of `runs/predict`; how a query gets its weights; and how many examples are right.
import { rowsOf, softmax } from "../engine/linear.js";
import { argmax, buildModel } from "../engine/model.js";
import { keyOf } from "../engine/parts.js";
import { readSafetensors } from "../engine/safetensors.js";
import {
  countRight,
  createRunner,
  logProbabilityOf,
  measureMeanOutputs,
  recordOutputs,
} from "../engine/scores.js";
import { EOS, FIRST_SYMBOL, SOS, Vocabulary, hasRule, targetOf } from "../engine/tasks.js";
/** @import { Ablation, Component } from "../engine/types.js" */
/** @import { ModelDescription } from "./responses.js" */
/** @typedef {"zero" | "mean" | "resample"} Method of ablation */

export const SMALL_SAMPLE = 32; // examples for mean outputs
const PIECE_MS = 2; // of counting, at least, before another task

let nPictures = 0; // of all models

export class BrowserModel {
  /** @param {ModelDescription} description @param {ArrayBuffer} weights a safetensors file */
  constructor(description, weights) {
    this.description = description;
    this.model = buildModel(description.architecture, description.model, readSafetensors(weights));
    this.vocabulary = new Vocabulary(description.symbols);
    this.run = createRunner(this.model, description.examples);
    /** The mean output of a component over the first examples, by their number. */
    this.means = /** @type {Map<number, (component: Component) => Float32Array>} */ (new Map());
    /** The outputs of the components on an example, by its index. */
    this.outputs = /** @type {Map<number, Map<string, Float32Array>>} */ (new Map());
  }

  /**
   * Return the tokens of an input and of its target, if it is known, with EOS. It throws a
   * RangeError for a text that is no input of this model.
   * @param {string} text
   */
  read(text) {
    const { task, n_symbols, examples } = this.description,
      most = this.model.config.max_positions - 1,
      tokens = this.vocabulary.encode(text),
      source = [...tokens, EOS],
      symbols = tokens.map((token) => token - FIRST_SYMBOL),
      target = targetOf(task, symbols, n_symbols)?.map((symbol) => symbol + FIRST_SYMBOL),
      find = () => examples.find((each) => String(each.source) === String(source)),
      labels = target ? [...target, EOS] : (find()?.labels ?? null);
    if (!tokens.length) throw new RangeError("there is no token");
    if (!labels && hasRule(task)) throw new RangeError("this is no input of the task");
    if (Math.max(tokens.length, (labels?.length ?? 1) - 1) > most)
      throw new RangeError(`this model reads and writes at most ${most} tokens`);
    return { source, labels };
  }

  /** Return null for a text that is no input. @param {string} text */
  tryToRead(text) {
    try {
      return this.read(text);
    } catch (error) {
      if (error instanceof RangeError) return null;
      throw error;
    }
  }

  /** @param {number[]} source @param {number[] | null} labels @param {Ablation[]} ablations */
  write(source, labels, ablations) {
    const { max_positions } = this.model.config,
      length = Math.max(this.description.max_tokens, labels?.length ?? 0);
    return this.model.generate(source, Math.min(length, max_positions), ablations);
  }

  /**
   * Return what `runs/predict` returns; null for a text that is no input of this model.
   * @param {string} text @param {Component[]} off @param {Method} method
   */
  answer(text, off, method) {
    const input = this.tryToRead(text);
    if (!input) return null;
    const { source, labels } = input,
      ablations = this.ablate(off, method),
      ofTarget = labels && this.picture(source, labels, ablations),
      // Where each token of the target is the most probable one, decoding writes the target.
      isRight = ofTarget && String(ofTarget.probe.predicted) === String(ofTarget.probe.target),
      output = isRight ? labels : this.write(source, labels, ablations),
      reference = labels ?? (off.length ? this.write(source, labels, []) : output);
    return {
      prediction: this.names(output, true),
      target: labels || off.length ? this.names(reference, true) : null,
      note: this.describe(source.length - 1, labels !== null, off.length > 0),
      forward_pass: ofTarget ?? this.picture(source, reference, ablations),
    };
  }

  /**
   * Return the output for a text, and the weights of a pass over it or over the target; null for
   * what is no input, or has no target that the page knows.
   * @param {string} text @param {boolean} isTeacherForced
   */
  inspect(text, isTeacherForced) {
    const { source, labels } = this.tryToRead(text) ?? {};
    if (!source || !labels) return null;
    const output = this.write(source, labels, []);
    return {
      prediction: this.names(output),
      target: this.names(labels),
      note: this.describe(source.length - 1, true, false),
      ...this.picture(source, isTeacherForced ? labels : output, []),
    };
  }

  components() {
    return this.model.components();
  }

  /** @param {number} length of the input @param {boolean} hasTarget @param {boolean} isAblated */
  describe(length, hasTarget, isAblated) {
    const [low, high] = this.description.lengths,
      notes = [];
    if (length < low || length > high)
      notes.push(`trained on length ${low < high ? `${low} to ${high}` : high} only`);
    if (!hasTarget)
      notes.push(
        isAblated
          ? "compared with the output of the whole model, because the page has no target"
          : "the page has no target for this input",
      );
    return notes.join("; ");
  }

  /** Those of an output end before EOS. @param {number[]} tokens @param {boolean} [isOutput] */
  names(tokens, isOutput = false) {
    const end = isOutput ? tokens.indexOf(EOS) : -1;
    return this.vocabulary.decode(end < 0 ? tokens : tokens.slice(0, end));
  }

  /**
   * Return what the diagram draws of a pass with these tokens as the decoder's input: the right
   * ones, or those that the model has written.
   * @param {number[]} source @param {number[]} labels @param {Ablation[]} ablations
   */
  picture(source, labels, ablations) {
    const decoderInput = [SOS, ...labels.slice(0, -1)],
      { target_vocab_size: V, n_heads } = this.model.config,
      { logits_TV, pass } = this.model.forward(source, decoderInput, ablations),
      rows = rowsOf(logits_TV, V),
      predicted = rows.map(argmax), // before softmax, which makes close logits equal
      probabilities = rows.map(softmax);
    this.pass = pass;
    this.number = ++nPictures;
    return {
      number: this.number,
      source: this.names(source, true),
      axes: this.axes(source, decoderInput, labels),
      attention: Object.fromEntries(
        Object.entries(pass.attention).map(([kind, layers]) => [
          kind,
          layers.map((weights_HQM) =>
            rowsOf(weights_HQM.map(toThousandths), weights_HQM.length / n_heads),
          ),
        ]),
      ),
      probe: {
        target: this.names(labels),
        predicted: this.names(predicted),
        probability: predicted.map((token, t) => toThousandths(probabilities[t][token])),
      },
      contributions: pass.contributions,
    };
  }

  /**
   * Return the tokens of the rows and the columns by kind of attention.
   * @param {number[]} source @param {number[]} decoderInput @param {number[]} labels
   */
  axes(source, decoderInput, labels) {
    const [kind, ...others] = this.model.kinds,
      blanks = Array(Math.max(0, labels.length - source.length)).fill(SOS),
      all = this.names([...source, ...(kind === "encoder" ? blanks : decoderInput.slice(1))]),
      [read, written] = [source, decoderInput].map((tokens) => this.names(tokens));
    return others.length
      ? { encoder: [read, read], decoder: [written, written], cross: [this.names(labels), read] }
      : { [kind]: [all, all] };
  }

  /**
   * Return how a query of the last picture gets its weights, as the view `attention-scores` does;
   * null if `number` is that of an earlier picture.
   * @param {{ kind: string, layer: number, head: number, query: number }} options
   * @param {number} [number]
   */
  scores({ kind, layer, head, query }, number = this.number) {
    if (!this.pass || number !== this.number) return null;
    const { n_heads, n_kv_heads, keySize: K, position_type } = this.model.config,
      { pass } = this,
      { query_QHK, key_MGK } = pass.vectors[kind][layer],
      stack = (kind === "encoder" && this.model.encoder) || this.model.stack,
      { bias } = stack.layers[layer].self_attn.position,
      isBiased = ["alibi", "t5"].includes(position_type) && kind !== "cross",
      group = Math.floor((head * n_kv_heads) / n_heads),
      query_K = rowsOf(query_QHK, K)[query * n_heads + head],
      keys = rowsOf(key_MGK, K).filter((_, i) => i % n_kv_heads === group),
      products = keys.map((key_K) => key_K.reduce((sum, x, k) => sum + x * query_K[k], 0)),
      biases = isBiased ? keys.map((_, m) => bias(head, m - query)) : null,
      rows = rowsOf(pass.attention[kind][layer], keys.length),
      isSeen = (/** @type {number} */ m) => kind !== "decoder" || m <= query,
      score = (/** @type {number} */ product, /** @type {number} */ m) =>
        isSeen(m) ? product / Math.sqrt(K) + (biases?.[m] ?? 0) : null;
    return {
      query: [...query_K],
      keys: keys.map((key_K) => [...key_K]),
      products,
      root: Math.sqrt(K),
      bias: biases,
      scores: products.map(score),
      weights: [...rows[head * (rows.length / n_heads) + query]],
    };
  }

  /**
   * Count the right examples from one on, and their right tokens, for some milliseconds. Sum the
   * log-probabilities of their targets.
   * @param {number} from @param {number} to @param {Component[]} off @param {Method} method
   * @param {number} [nMeans] examples of the means
   */
  count(from, to, off, method, nMeans) {
    const fixed = method === "resample" ? null : this.ablate(off, method, nMeans),
      end = performance.now() + PIECE_MS;
    let right = 0,
      tokens = 0,
      logProbability = 0,
      next = from;
    do {
      const { labels } = this.description.examples[next],
        rows = this.run(next, fixed ?? this.resample(off, next)),
        count = countRight(rows, labels);
      tokens += count;
      right += Number(count === labels.length);
      logProbability += logProbabilityOf(rows, labels);
      next++;
    } while (next < to && performance.now() < end);
    return { right, tokens, logProbability, next };
  }

  /**
   * @param {Component[]} off @param {Method} method @param {number} [nMeans] @returns {Ablation[]}
   */
  ablate(off, method, nMeans = SMALL_SAMPLE) {
    if (method === "zero") return off.map((component) => ({ component }));
    const meanOf = this.means.get(nMeans) ?? this.measureMeans(nMeans);
    return off.map((component) => ({ component, output: meanOf(component) }));
  }

  /**
   * Return ablations by the outputs on the next example of the same lengths, as the server does.
   * The last one of some lengths gets those of the first.
   * @param {Component[]} off @param {number} index of an example @returns {Ablation[]}
   */
  resample(off, index) {
    const { examples } = this.description,
      lengthsOf = (/** @type {number} */ i) =>
        `${examples[i].source.length} ${examples[i].labels.length}`,
      after = examples.map((_, i) => (index + 1 + i) % examples.length),
      donor = /** @type {number} */ (after.find((i) => lengthsOf(i) === lengthsOf(index))),
      outputs = this.outputs.get(donor) ?? recordOutputs(this.model, examples[donor]);
    this.outputs.set(donor, outputs);
    return off.map((component) => ({ component, output: outputs.get(keyOf(component)) }));
  }

  /** @param {number} n examples */
  measureMeans(n) {
    const measure = measureMeanOutputs(this.model, this.description.examples.slice(0, n)),
      known = /** @type {Map<string, Float32Array>} */ (new Map()),
      meanOf = (/** @type {Component} */ component) => {
        const output = known.get(keyOf(component)) ?? measure(component);
        known.set(keyOf(component), output);
        return output;
      };
    this.means.set(n, meanOf);
    return meanOf;
  }
}

const toThousandths = (/** @type {number} */ weight) => Math.round(1000 * weight);
