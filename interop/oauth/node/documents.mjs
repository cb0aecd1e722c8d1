// The documents of clients that no operator has listed (client ID metadata documents), and traps for those who read them.

import { createServer } from 'node:https';
import { once } from 'node:events';
import { createServer as createTcpServer } from 'node:net';

/** Serves documents over TLS with this certificate. */
export async function startDocuments(certificate) {
  const [answers, requests] = [new Map(), []];
  const server = createServer(certificate.pem, (request, response) => {
    requests.push(request.url);
    const answer = answers.get(request.url);
    if (answer) answer(response);
    else response.writeHead(404).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const base = `https://127.0.0.1:${server.address().port}`;
  const serve = (path, answer) => {
    answers.set(path, answer);
    return base + path;
  };
  return {
    base,
    /** The paths that were asked for. */
    requests,
    /** Gives this answer at a path. Returns its URL. */
    serve,
    /** The id of a client with this document. */
    publish: (path, document) => serve(path, (response) =>
      response.end(JSON.stringify({ client_id: base + path, client_name: 'Visitor', ...document }))),
    stop: () => server.closeAllConnections() ?? server.close(),
  };
}

/** A server that nobody may connect to. */
export async function startTrap(address) {
  let connections = 0;
  const server = createTcpServer((socket) => {
    connections += 1;
    socket.destroy();
  }).listen(0, address);
  await once(server, 'listening');
  return { port: server.address().port, connections: () => connections, stop: () => server.close() };
}
