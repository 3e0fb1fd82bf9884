// One pretend appliance: a small range server over a directory, in a process of its own so that it
// can be killed and stopped like a real one. Started by mock.mjs, which passes one JSON argument:
// {host, port, dir, tls: {cert, key}?, fault?}. Twice a second it tells its parent what it sent.
//
// The last part of a token says when it ends, in ms since 1970: 403 from then on. Told
// {sendTo: URL} by its parent, it sends each request on to that appliance with 307, marked as
// appliances mark it; told {refuse: STATUS}, it answers each with that status, until told 0.
//
// `fault` makes it lie, so that the self-test's checker can be seen to notice:
//   {"kind":"flip","path":"r2.mp4","offset":5000}   one bit of one byte is wrong
//   {"kind":"shift","path":"r2.mp4"}                right length and headers, bytes of the next
//   {"kind":"short","path":"r2.mp4"}                one byte less than asked for, said so honestly

import { createReadStream, readFileSync, statSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import path from "node:path";
import { Transform } from "node:stream";

const options = JSON.parse(process.argv[2]);
const TYPES = {
  ".mp4": "video/mp4",
  ".m4s": "video/iso.segment",
  ".m3u8": "application/vnd.apple.mpegurl",
  ".mpd": "application/dash+xml",
};
const COMMON = {
  "Accept-Ranges": "bytes",
  "Cache-Control": "public, max-age=31536000, immutable",
  "Access-Control-Allow-Origin": "*",
  "Access-Control-Expose-Headers":
    "Content-Length, Content-Range, ETag, Date, CMSD-Static, CMSD-Dynamic",
  "Timing-Allow-Origin": "*",
  "Cross-Origin-Resource-Policy": "cross-origin",
};

let sentBytes = 0;
let requests = 0;
const told = { sendTo: null, refuse: 0 };
process.on("message", (message) => Object.assign(told, message));
const connections = new Set();

/** What to send for a Range header and a file of `size` bytes; null if it cannot be satisfied. */
function spanOf(header, size) {
  const match = /^bytes=(\d+)-(\d*)$/.exec(header ?? "");
  if (!match) return { status: 200, first: 0, last: size - 1 };
  const first = Number(match[1]);
  const last = match[2] === "" ? size - 1 : Math.min(Number(match[2]), size - 1);
  return first <= last ? { status: 206, first, last } : null;
}

/** Flips one bit of the byte at `offset` of the file, if it passes by. */
function flipping(first, offset) {
  let position = first;
  return new Transform({
    transform(piece, _encoding, done) {
      const at = offset - position;
      position += piece.length;
      if (0 <= at && at < piece.length) piece[at] ^= 1;
      done(null, piece);
    },
  });
}

function answer(request, response) {
  requests += 1;
  const url = new URL(request.url, "http://any");
  const [, t, token, version, ...rest] = url.pathname.split("/").map(decodeURIComponent);
  const name = path.posix.normalize(rest.join("/"));
  const refuse = (status) =>
    response.writeHead(status, { ...COMMON, "Cache-Control": "no-store" }).end();
  if (told.refuse) return refuse(told.refuse);
  if (t !== "t" || !token || !version || name.startsWith("..")) return refuse(404);
  if (Number(token.split("-").at(-1)) <= Date.now()) return refuse(403);
  if (told.sendTo && !url.searchParams.has("hop")) {
    url.searchParams.set("hop", "1");
    const Location = told.sendTo + url.pathname + url.search;
    return response.writeHead(307, { ...COMMON, "Cache-Control": "no-store", Location }).end();
  }
  let size;
  try {
    size = statSync(path.join(options.dir, name)).size;
  } catch {
    return refuse(404);
  }
  const span = spanOf(request.headers.range, size);
  if (!span) return refuse(416);
  let { first, last } = span;
  const fault = options.fault?.path === name ? options.fault : undefined;
  if (fault?.kind === "short" && last > first) last -= 1;
  response.writeHead(span.status, {
    ...COMMON,
    "Content-Type": TYPES[path.extname(name)] ?? "application/octet-stream",
    "Content-Length": last - first + 1,
    ETag: `"${name}-${size}"`,
    ...(span.status === 206 ? { "Content-Range": `bytes ${first}-${last}/${size}` } : {}),
  });
  if (request.method === "HEAD") return response.end();
  if (fault?.kind === "shift" && last + 1 < size) [first, last] = [first + 1, last + 1];
  const file = createReadStream(path.join(options.dir, name), { start: first, end: last });
  file.on("data", (piece) => (sentBytes += piece.length));
  const bytes = fault?.kind === "flip" ? file.pipe(flipping(first, fault.offset)) : file;
  response.on("close", () => file.destroy());
  bytes.pipe(response);
}

const { tls } = options;
const server = tls
  ? https.createServer({ cert: readFileSync(tls.cert), key: readFileSync(tls.key) }, answer)
  : http.createServer(answer);
server.on("connection", (socket) => {
  connections.add(socket);
  socket.on("close", () => connections.delete(socket));
});
server.listen(options.port, options.host, () => process.send?.({ port: server.address().port }));
setInterval(() => {
  process.send?.({ sentBytes, requests, connections: connections.size });
}, 500);
process.on("disconnect", () => process.exit(0));
