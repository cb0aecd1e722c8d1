// HTTP/1.1 as bytes: it sends requests that no HTTP library would, and reads the answers.

import { connect } from 'node:net';

/** How long an answer may take. Streams and incomplete requests have none. */
const TIMEOUT_MS = 10_000;
const SHORT_TIMEOUT_MS = 400;

/** Connections to a port, each used by one request at a time. */
export function client(port) {
  const idle = [];
  return {
    /**
     * Sends a request. The answer has `status`, `headers` and `body`; `status` is 0 if there was none. A request that
     * is `isOdd` has a connection of its own and ends early: its answer may not end, or more than one may come.
     */
    async send(bytes, { method, isOdd }) {
      const connection = (!isOdd && idle.pop()) || (await open(port));
      const answer = await connection.exchange(bytes, { method, timeout: isOdd ? SHORT_TIMEOUT_MS : TIMEOUT_MS });
      if (!isOdd && connection.isReusable(answer)) idle.push(connection);
      else connection.destroy();
      return answer;
    },
    close: () => idle.forEach((connection) => connection.destroy()),
  };
}

async function open(port) {
  const socket = connect(port, '127.0.0.1');
  socket.setNoDelay(true);
  let received = Buffer.alloc(0);
  let isOpen = true;
  let wake = () => {};
  socket.on('data', (more) => {
    received = received.length ? Buffer.concat([received, more]) : more;
    wake();
  });
  socket.on('close', () => {
    isOpen = false;
    wake();
  });
  socket.on('error', () => {});
  return {
    exchange(bytes, { method, timeout }) {
      return new Promise((done) => {
        const finish = (answer) => {
          clearTimeout(timer);
          wake = () => {};
          done(answer);
        };
        const cut = () => finish({ ...NONE, ...readAnswer(received, method, true), isCut: true });
        const timer = setTimeout(cut, timeout);
        wake = () => {
          const answer = readAnswer(received, method, !isOpen);
          if (!answer && isOpen) return;
          received = received.subarray(answer?.length ?? received.length);
          finish(answer ?? NONE);
        };
        socket.write(bytes);
        if (!isOpen) wake();
      });
    },
    isReusable: (answer) => isOpen && !answer.isCut && !received.length && answer.headers.connection !== 'close',
    destroy: () => socket.destroy(),
  };
}

const NONE = { status: 0, headers: {}, body: '' };

/** The answer at the start of these bytes; undefined if it is not complete. `isAll` if no more bytes will come. */
function readAnswer(bytes, method, isAll) {
  const end = bytes.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [first, ...lines] = bytes.toString('latin1', 0, end).split('\r\n');
  const status = Number(first.split(' ')[1]);
  if (status === 100) {
    const after = readAnswer(bytes.subarray(end + 4), method, isAll);
    return after && { ...after, length: after.length + end + 4 };
  }
  const headers = Object.fromEntries(lines.map((line) => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  }));
  const rest = bytes.subarray(end + 4);
  const isEmpty = method === 'HEAD' || status === 204 || status === 304;
  const body = isEmpty ? { text: '', length: 0 } : readBody(rest, headers, isAll);
  return body && { status, headers, body: body.text, length: end + 4 + body.length };
}

function readBody(bytes, headers, isAll) {
  if (headers['transfer-encoding'] === 'chunked') return readChunks(bytes, isAll);
  const length = headers['content-length'] === undefined ? Infinity : Number(headers['content-length']);
  if (bytes.length < length && !isAll) return undefined;
  const end = Math.min(length, bytes.length);
  return { text: bytes.toString('utf8', 0, end), length: end };
}

function readChunks(bytes, isAll) {
  const parts = [];
  let place = 0;
  for (;;) {
    const end = bytes.indexOf('\r\n', place);
    const size = end < 0 ? NaN : Number.parseInt(bytes.toString('latin1', place, end), 16);
    const next = end + 2 + size + 2;
    if (Number.isNaN(size) || next > bytes.length) {
      return isAll ? { text: Buffer.concat(parts).toString(), length: bytes.length } : undefined;
    }
    if (size === 0) return { text: Buffer.concat(parts).toString(), length: next };
    parts.push(bytes.subarray(end + 2, end + 2 + size));
    place = next;
  }
}
