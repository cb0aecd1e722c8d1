// Child processes. Each one ends with this process, and is ended by its id.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

const running = new Set();

process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1));

/** Starts a program whose output goes to this file. */
export function start(program, options, log) {
  const file = openSync(log, 'w');
  const child = spawn(program, options, { stdio: ['pipe', file, file] });
  closeSync(file);
  running.add(child);
  child.on('error', (error) => (child.failure = error));
  child.on('exit', () => running.delete(child));
  child.output = () => readFileSync(log, 'utf8');
  return child;
}

export async function stop(child) {
  if (!running.has(child)) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
  await ended;
  clearTimeout(timer);
}

/** Waits until the check gives a value; a check that throws is tried again. Not longer than `child` runs, if given. */
export async function until(what, check, child) {
  const end = Date.now() + 60_000;
  let problem;
  while (Date.now() < end) {
    const ended = child && (child.failure ?? child.exitCode ?? child.signalCode);
    if (ended != null) throw new Error(`${what}: the program ended (${ended})\n${child.output().slice(-4000)}`);
    try {
      const found = await check();
      if (found) return found;
    } catch (error) {
      problem = error;
    }
    await pause(50);
  }
  throw new Error(`timed out: ${what}`, { cause: problem });
}

/** Free ports on the loopback address, for programs that must know their own addresses before they start. */
export async function freePorts(count) {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => once(server.close(), 'close')));
  return ports;
}
