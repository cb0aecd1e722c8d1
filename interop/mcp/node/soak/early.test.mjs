// No server on an official SDK acts before a request's body ends. `hold: body` relies on that: the headers are there
// before the filter has decided.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { freePorts } from '../../../oauth/node/processes.mjs';
import { startServers } from './servers.mjs';

/** Longer than a server takes for a call. */
const PATIENCE_MS = 1000;

const MESSAGE = JSON.stringify({
  jsonrpc: '2.0', id: 1, method: 'tools/call',
  params: {
    name: 'note', arguments: {},
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {},
      'io.modelcontextprotocol/clientInfo': { name: 'early', version: '1' },
    },
  },
});

/** Sends a whole message, in a body that goes on for some blanks. Returns the connection. */
function begin(port) {
  const lines = {
    host: '127.0.0.1', 'content-type': 'application/json', accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'note',
    'content-length': Buffer.byteLength(MESSAGE) + 1,
  };
  const head = Object.entries(lines).map(([name, value]) => `${name}: ${value}\r\n`).join('');
  const connection = connect(port, '127.0.0.1');
  connection.on('error', () => {});
  connection.resume();
  connection.write(`POST /mcp HTTP/1.1\r\n${head}\r\n${MESSAGE}`);
  return connection;
}

test('a server acts on a whole body only', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'credence-mcp-early-'));
  const servers = await startServers({ folder, root: process.env.CREDENCE_ROOT, ports: await freePorts(4) });
  try {
    for (const { name, port, ran, isStateless } of servers) {
      const reset = begin(port);
      await pause(PATIENCE_MS);
      reset.resetAndDestroy();
      await pause(PATIENCE_MS);
      assert.deepEqual(ran(), [], `${name} has run what was reset`);
      if (!isStateless) continue;
      const whole = begin(port);
      whole.write(' ');
      await pause(PATIENCE_MS);
      whole.destroy();
      assert.equal(ran().length, 1, `${name} runs what is whole`);
    }
  } finally {
    for (const { child } of servers) child.kill();
    rmSync(folder, { recursive: true });
  }
});
