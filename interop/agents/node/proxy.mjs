// The proxy of the agents. It runs as root, which alone can read the key.

import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, chownSync, closeSync, openSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { start, until } from '../../oauth/node/processes.mjs';
import { AUDIENCE } from '../../mcp/node/credence.mjs';
import { NOBODY } from './agents.mjs';

/** Proxies to `origin`, with the rules of Envoy's own configuration. */
export function proxies({ programs, folder, origin, holderKey }) {
  const rules = join(folder, 'rules.json');
  const envoy = join(folder, 'envoy.yaml');
  writeFileSync(rules, execFileSync(programs.credence, ['config', 'describe', '--for-agents', envoy]));

  /** Writes a configuration; each client has a name, a delegation and `settings`. */
  function configure(name, clients) {
    const file = join(folder, `${name}.yaml`);
    const configuration = {
      services: [{ url: origin, audience: [AUDIENCE], rules }],
      credentials: clients.map(({ name, delegation }) => {
        const file = join(folder, `delegation-${name}`);
        writeFileSync(file, delegation.chain, { mode: 0o600 });
        return { name, key: { file: holderKey }, file };
      }),
      clients: clients.map(({ name, settings }) => ({ name, credential: name, uids: [NOBODY], ...settings })),
    };
    // JSON is valid YAML.
    writeFileSync(file, JSON.stringify(configuration));
    return file;
  }

  return {
    configure,
    /** Starts one proxy for all of them. */
    async serve(clients) {
      const options = ['proxy', '--config', configure('proxy', clients)];
      const child = start(programs.credence, options, join(folder, 'proxy.log'));
      await until('the proxy', () => listening(child.output()) === clients.length, child);
    },
    /**
     * Serves a client over standard input and output. An agent cannot start this proxy itself, since its user cannot
     * read the key: it connects to a socket, which only its user can open. Each connection has a proxy of its own, as
     * with a socket unit of systemd that has `Accept=yes`. Returns the socket.
     */
    async serveStdio(client, url) {
      const settings = { listen: '127.0.0.1:0', service: origin };
      const config = configure(`stdio-${client.name}`, [{ ...client, settings }]);
      const socket = join(folder, `${client.name}.sock`);
      const server = createServer({ allowHalfOpen: true }, (connection) => {
        const log = openSync(join(folder, `stdio-${client.name}.log`), 'a');
        const options = ['proxy', '--config', config, '--stdio', url];
        const child = spawn(programs.credence, options, { stdio: ['pipe', 'pipe', log] });
        closeSync(log);
        running.add(child);
        child.on('exit', () => running.delete(child));
        // Either side may end first.
        for (const stream of [connection, child.stdin]) stream.on('error', () => {});
        connection.pipe(child.stdin);
        child.stdout.pipe(connection);
      });
      await new Promise((ready) => server.listen(socket, ready));
      chownSync(socket, NOBODY, 0);
      chmodSync(socket, 0o600);
      server.unref();
      return socket;
    },
  };
}

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));

const listening = (output) => output.split('\n').filter((line) => /^(127\.0\.0\.1:|unix:)/.test(line)).length;
