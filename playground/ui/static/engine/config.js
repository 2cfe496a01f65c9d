// The settings of a model, as config.json of a checkpoint has them (models/stack_config.py).

/**
 * @typedef {object} Config
 * @property {number} d_model
 * @property {number} n_heads
 * @property {number} n_kv_heads
 * @property {number} n_layers
 * @property {number} d_ff
 * @property {number} keySize of a head
 * @property {number} valueSize of a head
 * @property {string} activation
 * @property {string} norm_placement
 * @property {string} norm_type
 * @property {string} position_type
 * @property {number} sinusoidal_scale
 * @property {boolean} scale_embeddings
 * @property {number} max_positions
 * @property {number} randomized_range
 * @property {number} target_vocab_size
 */

/** Fill in what the value 0 stands for. @param {any} settings @returns {Config} */
export function resolveConfig(settings) {
  const headSize = Math.floor(settings.d_model / settings.n_heads);
  return {
    ...settings,
    n_kv_heads: settings.n_kv_heads || settings.n_heads,
    keySize: settings.d_k || headSize,
    valueSize: settings.d_v || headSize,
    randomized_range: settings.randomized_range || 4 * settings.max_positions,
  };
}
