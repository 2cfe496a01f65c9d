// The data of the engine. A tensor is a Float32Array, row by row; the letters at the end of a name
// are its dimensions: Q queries, M keys, N or P positions, H heads, G heads of keys and values,
// K size of a head's queries and keys, V size of a head's values, D d_model.

import type { ForwardPass } from "./forward_pass.js";

export type Tensor = { shape: number[]; data: Float32Array };
/** The weights of a checkpoint by name. */
export type Tensors = Record<string, Tensor>;

/** x_ND → y_NE */
export type Module = (x_ND: Float32Array) => Float32Array;
/** Build the module of this name from its weights. */
export type Load = (config: Config, tensors: Tensors, name: string) => Module;
/** What the positions that the pass computes now become: vectors or logits. */
export type Forward = (x_ND: Float32Array, pass: ForwardPass) => Float32Array;
export type ForwardTokens = (tokens: number[], pass: ForwardPass) => Float32Array;

export type KeysAndValues = { key_MGK: Float32Array; value_MGV: Float32Array };

/**
 * The settings of a model, as config.json of a checkpoint has them (models/config.py), and
 * the sizes that follow from them.
 */
export type Config = {
  d_model: number;
  n_heads: number;
  n_kv_heads: number;
  n_layers: number;
  keySize: number;
  valueSize: number;
  activation: string;
  norm_placement: string;
  norm_type: string;
  position_type: string;
  sinusoidal_scale: number;
  scale_embeddings: boolean;
  max_positions: number;
  nPositions: number;
  randomized_range: number;
  target_vocab_size: number;
};

/**
 * What acts inside attention: a rotation of queries or keys of the positions `first`, `first` + 1,
 * …, and a bias of a head for a distance, the key's position minus the query's.
 */
export type PositionEncoding = {
  rotate: (x_PHK: Float32Array, nHeads: number, first: number) => Float32Array;
  bias: (head: number, distance: number) => number;
};
/** Load the encoding of an attention of this name and kind: "encoder", "decoder" or "cross". */
export type LoadPositionEncoding = (
  config: Config,
  tensors: Tensors,
  name: string,
  kind: string,
) => PositionEncoding;

/**
 * A part of a model that can be switched off. The kinds are "encoder", "decoder" and "cross" for
 * heads, "encoder feed-forward" and "decoder feed-forward" for blocks, "source positions" and
 * "target positions". Layers and heads count from 0.
 */
export type Component = { kind: string; layer: number | null; head: number | null };

/**
 * A component and what takes the place of its output: a row (of d_model or of a head's value size)
 * for each position, or nothing for zeros.
 */
export type Ablation = { component: Component; output?: Float32Array };

/** Tokens of a source and of the right output. Both end with EOS. */
export type Example = { source: number[]; labels: number[] };

/**
 * The output for a source, or null for one that is not of the task. A symbol is its number in the
 * alphabet, which begins with the n digits that a task counts with.
 */
export type Rule = (source: number[], n: number) => number[] | null;
