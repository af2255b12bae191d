// Runs ONNX models in ONNX Runtime's WebAssembly build, for ort_web.py, over stdin and stdout.
//
// A message is the length of a header in four bytes, little-endian, the header in JSON, and bytes, of which the
// header says how they are divided. One answer follows each message; the end of the input ends the process.
"use strict";

const fs = require("fs");

// Whatever prints must not print between answers.
console.log = console.info = console.debug = console.warn = () => {};
const ort = require(process.argv[2]);

ort.env.wasm.numThreads = 1;
ort.env.logLevel = "fatal";

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, bool: Uint8Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
};
const sessions = new Map();

function read(count) {
  const buffer = Buffer.alloc(count);
  for (let place = 0; place < count;) {
    const got = fs.readSync(0, buffer, place, count - place, null);
    if (got === 0) process.exit(0);
    place += got;
  }
  return buffer;
}

function write(buffer) {
  for (let place = 0; place < buffer.length;) place += fs.writeSync(1, buffer, place, buffer.length - place);
}

function answer(header, parts = []) {
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(text.length);
  write(Buffer.concat([length, text, ...parts]));
}

async function load({ id, level, bytes }) {
  const options = { executionProviders: ["wasm"], graphOptimizationLevel: level, logSeverityLevel: 4 };
  sessions.set(id, await ort.InferenceSession.create(new Uint8Array(read(bytes)), options));
  return [{}];
}

async function run({ id, feeds, outputs }) {
  const given = {};
  for (const { name, type, dims, bytes } of feeds) {
    const content = read(bytes);
    // A copy of its own is aligned.
    const own = content.buffer.slice(content.byteOffset, content.byteOffset + bytes);
    given[name] = new ort.Tensor(type, new ARRAYS[type](own), dims);
  }
  const found = await sessions.get(id).run(given);
  const tensors = outputs.map((name) => found[name]);
  const parts = tensors.map(({ data }) => Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  return [{ outputs: tensors.map(({ type, dims }, i) => ({ type, dims, bytes: parts[i].length })) }, parts];
}

async function release({ id }) {
  const session = sessions.get(id);
  sessions.delete(id);
  if (session) await session.release();
  return [{}];
}

async function main() {
  const kinds = { load, run, release };
  for (;;) {
    const header = JSON.parse(read(read(4).readUInt32LE(0)).toString());
    try {
      answer(...(await kinds[header.kind](header)));
    } catch (error) {
      answer({ error: String((error && error.message) || error) });
    }
  }
}

main();
