// Sessions of the older versions, each begun through the filter with one delegation under one rule.

import { SESSIONS } from '../stack.mjs';
import { RULES } from './rules.mjs';

/** Keeps one session for each server, rule and delegation. `send` sends a request through the filter. */
export function sessionKeeper({ send, delegations, prove }) {
  const known = new Map();
  /** The rule and the delegation of each session, by server and id. */
  const owners = new Map();

  async function begin({ server, rule }, granted) {
    const clientInfo = { name: 'soak', version: '1.0.0' };
    const params = { protocolVersion: SESSIONS.at(-1), capabilities: {}, clientInfo };
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      const message = { jsonrpc: '2.0', id: 'begin', method: 'initialize', params };
      const { headers: { 'mcp-session-id': id } } = await post({ server, rule, granted, message });
      if (!id) continue;
      // The server's own id, without the filter's seal.
      owners.set(`${server.name} ${id.split('.')[0]}`, { rule, granted });
      const done = { jsonrpc: '2.0', method: 'notifications/initialized' };
      await post({ server, rule, granted, message: done, session: id });
      return id;
    }
    throw new Error(`${server.name} began no session under the rule ${rule}`);
  }

  function post({ server, rule, granted, message, session }) {
    const body = JSON.stringify(message);
    const proof = { tool: message.method, args: JSON.stringify(message.params ?? {}) };
    const headers = {
      host: '127.0.0.1', 'content-type': 'application/json', accept: 'application/json, text/event-stream',
      'content-length': Buffer.byteLength(body), delegation: delegations[granted].chain,
      ...(rule === 'proven' && { 'delegation-proof': prove(delegations[granted], proof) }),
      ...(session && { 'mcp-session-id': session }),
    };
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join('');
    const head = `POST ${RULES[rule]}/${server.name}/mcp HTTP/1.1\r\n${lines}\r\n`;
    return send(Buffer.from(head + body), { method: 'POST' });
  }

  const keyOf = ({ server, rule }, granted) => `${server.name} ${rule} ${granted}`;
  return {
    /** The id of the session with this delegation, for a case of the same server and rule. */
    async get(found, granted) {
      const key = keyOf(found, granted);
      if (!known.has(key)) known.set(key, begin(found, granted));
      return known.get(key);
    },
    /** The rule and the delegation that began a session on a server. */
    ownerOf: (server, id) => owners.get(`${server.name} ${id}`),
    /** Begins the session of a case again the next time. */
    forget: (found) => known.delete(keyOf(found, found.granted)),
  };
}

const ATTEMPTS = 20;
