// Clients in Python: a program that performs one action a line.

import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const ACTIONS = ['list', 'call', 'read', 'prompt', 'complete', 'notify', 'subscribe', 'close'];

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));

/** Opens clients with this program of interop/mcp/python, in the environment that this variable names. */
export function pythonClient(program, environment) {
  return async (options) => {
    const file = join(process.env.CREDENCE_ROOT, 'interop/mcp/python', program);
    const python = join(process.env[environment], 'bin/python');
    const child = spawn(python, [file], { stdio: ['pipe', 'pipe', 'inherit'] });
    running.add(child);
    child.on('exit', () => running.delete(child));
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const ask = async (request) => {
      child.stdin.write(`${JSON.stringify(request)}\n`);
      const { value, done } = await lines.next();
      if (done) throw new Error(`${program} ended`);
      const { ok, error, denial } = JSON.parse(value);
      if (error === undefined) return ok;
      throw Object.assign(new Error(error), { denial });
    };
    try {
      await ask(options);
    } catch (error) {
      child.kill('SIGKILL');
      throw error;
    }
    return Object.fromEntries(ACTIONS.map((action) => [action, (...args) => ask([action, ...args])]));
  };
}
