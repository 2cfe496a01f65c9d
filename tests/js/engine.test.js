// The engine against PyTorch: the golden models of tests/support/engine_models.py.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { keyOf } from "../../playground/ui/static/engine/parts.js";
import { rowsOf } from "../../playground/ui/static/engine/linear.js";
import { buildModel } from "../../playground/ui/static/engine/model.js";
import { readSafetensors } from "../../playground/ui/static/engine/safetensors.js";
import { measureMeanOutputs, recordOutputs } from "../../playground/ui/static/engine/scores.js";
import { PAD, SOS, Vocabulary, targetOf } from "../../playground/ui/static/engine/tasks.js";

const FOLDER = new URL("../data/engine/", import.meta.url),
  TOLERANCE = 1e-4;

/** @param {string} name */
function load(name) {
  const golden = JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER), "utf8")),
    bytes = readFileSync(new URL(`${name}.safetensors`, FOLDER)),
    tensors = readSafetensors(
      bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length),
    );
  return { golden, tensors, model: buildModel(golden.architecture, golden.model, tensors) };
}

function assertNear(actual, expected, what) {
  assert.equal(actual.length, expected.length, what);
  for (let i = 0; i < expected.length; i++)
    assert.ok(
      Math.abs(actual[i] - expected[i]) <= TOLERANCE,
      `${what}: ${actual[i]}, not ${expected[i]}`,
    );
}

/** The output up to PAD, which only an untrained model writes. */
function write(model, source, ablations) {
  const tokens = model.generate(source, model.config.max_positions, ablations),
    end = tokens.indexOf(PAD);
  return end < 0 ? tokens : tokens.slice(0, end + 1);
}

const names = readdirSync(FOLDER)
  .filter((file) => file.endsWith(".json"))
  .map((file) => file.slice(0, -5));

for (const name of names)
  test(`${name} computes what PyTorch computes`, () => {
    const { golden, model } = load(name),
      V = golden.model.target_vocab_size,
      meanOf = measureMeanOutputs(model, golden.cases);
    for (const [index, expected] of golden.cases.entries()) {
      const input = [SOS, ...expected.labels.slice(0, -1)],
        { logits_TV, pass } = model.forward(expected.source, input),
        other = golden.cases[1 - index];
      assertNear(logits_TV, expected.logits, "logits");
      assert.deepEqual(Object.keys(pass.attention).sort(), Object.keys(expected.attention).sort());
      for (const [kind, layers] of Object.entries(expected.attention))
        layers.forEach((weights, i) => assertNear(pass.attention[kind][i], weights, kind));
      assertNear(
        Object.keys(expected.contributions).map((key) => pass.contributions[key]),
        Object.values(expected.contributions),
        "contributions",
      );
      assert.deepEqual(write(model, expected.source), expected.output);
      for (const { kind, layer, head, method, last_logits, output } of expected.ablations) {
        const component = { kind, layer, head },
          what = `${method} ${keyOf(component)}`,
          values = {
            zero: () => undefined,
            mean: () => meanOf(component),
            resample: () => recordOutputs(model, other).get(keyOf(component)),
          }[method](),
          ablations = [{ component, output: values }],
          ablated = model.forward(expected.source, input, ablations).logits_TV;
        assertNear(rowsOf(ablated, V).at(-1), last_logits, what);
        assert.deepEqual(write(model, expected.source, ablations), output, what);
      }
    }
  });

const TASKS = JSON.parse(readFileSync(new URL("../engine_tasks.json", FOLDER), "utf8"));

for (const [task, examples] of Object.entries(TASKS))
  test(`targets of ${task} are those of the server`, () => {
    for (const { source, n, target } of examples)
      assert.deepEqual(targetOf(task, source, n), target, source.join(" "));
  });

test("a source that is not of the task has no target", () => {
  assert.equal(targetOf("addition", [1, 2, 3], 7), null);
  assert.equal(targetOf("addition", [7, 2, 3], 7), null);
  assert.equal(targetOf("brackets", [0, 3], 2), null);
  // two dogs sees a car; a dog sees; red cars
  assert.equal(targetOf("translate", [1, 11, 22, 0, 16], 7), null);
  assert.equal(targetOf("translate", [0, 10, 22], 7), null);
  assert.equal(targetOf("translate", [4, 17], 7), null);
  assert.equal(targetOf("random", [1, 2], 7), null);
  assert.equal(targetOf("dataset", [1, 2], 7), null);
});

/** A safetensors file. @param {object | string} header @param {ArrayLike<number>} data */
function writeFile(header, data) {
  const text = new TextEncoder().encode(
      typeof header === "string" ? header : JSON.stringify(header),
    ),
    bytes = new Uint8Array(8 + text.length + data.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  bytes.set(data, 8 + text.length);
  return bytes.buffer;
}

const F16 = { dtype: "F16", shape: [3], data_offsets: [0, 6] };

test("float16 weights are read", () => {
  const { w } = readSafetensors(writeFile({ w: F16 }, [0, 0x3c, 0, 0xc0, 1, 0]));
  assert.deepEqual([...w.data], [1, -2, 2 ** -24]);
});

for (const [what, header, data] of [
  ["a short file", { w: F16 }, [0, 0]],
  ["another shape", { w: { ...F16, shape: [2] } }, [0, 0, 0, 0, 0, 0]],
  ["a negative shape", { w: { ...F16, shape: [-3, -1] } }, [0, 0, 0, 0, 0, 0]],
  ["no shape", { w: { ...F16, shape: null } }, [0, 0, 0, 0, 0, 0]],
  ["negative offsets", { w: { ...F16, data_offsets: [-6, 0] } }, [0, 0, 0, 0, 0, 0]],
  ["an infinite weight", { w: F16 }, [0, 0x7c, 0, 0, 0, 0]],
  ["a weight that is no number", { w: F16 }, [1, 0x7c, 0, 0, 0, 0]],
  ["another type", { w: { ...F16, dtype: "I64" } }, [0, 0, 0, 0, 0, 0]],
  ["null", { w: null }, []],
  ["no JSON", "{", []],
])
  test(`weights are refused: ${what}`, () => {
    assert.throws(() => readSafetensors(writeFile(header, data)), RangeError);
  });

test("a file without a header is refused", () => {
  for (const length of [0, 7, 8])
    assert.throws(() => readSafetensors(new Uint8Array(length).fill(255).buffer), RangeError);
});

test("a missing weight, a foreign architecture and position encoding are named", () => {
  const { golden, tensors } = load("default");
  assert.throws(() => buildModel("transformer", golden.model, {}), /no weights/);
  assert.throws(() => buildModel("recurrent", golden.model, {}), /architecture recurrent/);
  const settings = { ...golden.model, position_type: "window" };
  assert.throws(() => buildModel("transformer", settings, tensors), /position encoding window/);
});

test("typed text becomes tokens as on the server", () => {
  const digits = new Vocabulary([..."0123456789"]),
    words = new Vocabulary(["cat", "dog"]);
  assert.deepEqual(digits.encode("3 1,4  15"), [6, 4, 7, 4, 8]);
  assert.deepEqual(words.encode(" dog  cat "), [4, 3]);
  assert.deepEqual(new Vocabulary(["\u00e9", "😀"]).encode("e\u0301😀"), [3, 4]);
  assert.throws(() => digits.encode("3 x"), /“x” is not a token/);
  assert.deepEqual(digits.decode([3, 2, 0]), ["0", "EOS", "PAD"]);
});

test("too many tokens are refused", () => {
  const { golden, model } = load("default");
  assert.throws(() => model.generate(Array(99).fill(3), golden.model.max_positions), RangeError);
});
