// Perfetto's trace processor (WebAssembly, as its web page has it) without a browser.
// node run_trace_processor.js FOLDER < requests > replies: TraceProcessorRpcStream both ways;
// FOLDER has engine_bundle.js and trace_processor.wasm.
"use strict";
const fs = require("fs"), path = require("path");
const folder = process.argv[2];
const node = process;
const give_up = (error) => {  // never the source line: it is the whole bundle
  fs.writeSync(2, `${error && error.name}: ${String(error && error.message).slice(0, 500)}\n`);
  node.exit(1);
};
process.on("uncaughtException", give_up);
process.on("unhandledRejection", give_up);
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = Object;
globalThis.importScripts = () => {};
globalThis.location = { href: "file:///engine_bundle.js", protocol: "file:", host: "" };
globalThis.XMLHttpRequest = class {  // a worker's synchronous reading, for files of that folder
  open(_, url) { this.url = path.basename(url); }
  send() {
    const data = fs.readFileSync(path.join(folder, this.url));
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
    this.status = 200;
  }
};
console.log = console.warn = () => {};
const port = {
  postMessage(reply) { for (let at = 0; at < reply.length;) at += fs.writeSync(1, reply, at); },
};
globalThis.process = undefined;  // the bundle refuses to run where it sees Node
(0, eval)(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
self.onmessage({ data: port });
const requests = new Uint8Array(fs.readFileSync(0));
// the module has compiled in this turn of the loop; its promise is kept in the next
setTimeout(() => { port.onmessage({ data: requests }); node.exit(0); }, 0);
