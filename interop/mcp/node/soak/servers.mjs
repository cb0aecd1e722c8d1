// The MCP servers behind the filter.

import { fstatSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { start, until } from '../../../oauth/node/processes.mjs';
import { NAMES } from './tools.mjs';

/**
 * Each server: whether it speaks the version without sessions, and whether the older versions have some. `python` and
 * `python1` are version 2 and version 1 of that SDK.
 */
const SERVERS = [
  { name: 'typescript', isStateless: true, hasSessions: false, command: typescript('stateless') },
  { name: 'typescript-sessions', isStateless: false, hasSessions: true, command: typescript('sessions') },
  { name: 'python', isStateless: true, hasSessions: true, command: python('CREDENCE_MCP_PYTHON', 'soak_server.py') },
  {
    name: 'python1', isStateless: false, hasSessions: false,
    command: python('CREDENCE_MCP_PYTHON1', 'soak_server_1.py'),
  },
];

function typescript(kind) {
  return ({ port, log }) => [process.execPath, [join(import.meta.dirname, 'server.mjs'), port, log, kind]];
}

function python(environment, file) {
  return ({ port, log, root }) => {
    const program = join(root, 'interop/mcp/python', file);
    return [join(process.env[environment], 'bin/python'), [program, port, log, JSON.stringify(NAMES)]];
  };
}

/** Starts them all, each on one of these ports. */
export function startServers({ folder, root, ports }) {
  return Promise.all(SERVERS.map(async ({ command, ...server }, place) => {
    const port = ports[place];
    const log = join(folder, `${server.name}.jsonl`);
    const [program, options] = command({ port, log, root });
    const child = start(program, options, join(folder, `${server.name}.log`));
    await until(server.name, () => fetch(`http://127.0.0.1:${port}/mcp`, { method: 'POST' }), child);
    return { ...server, port, child, ran: follow(log) };
  }));
}

/** What a server wrote down since the last time. */
function follow(log) {
  const file = openSync(log, 'a+');
  let begun = Buffer.alloc(0);
  let place = 0;
  return () => {
    const more = Buffer.alloc(fstatSync(file).size - place);
    place += readSync(file, more, 0, more.length, place);
    const all = Buffer.concat([begun, more]);
    const end = all.lastIndexOf(10) + 1;
    begun = all.subarray(end);
    return all.toString('utf8', 0, end).split('\n').filter(Boolean).map((line) => JSON.parse(line));
  };
}
