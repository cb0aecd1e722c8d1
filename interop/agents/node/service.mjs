// A REST service. Usage: node service.mjs PORT LOG. LOG gets one line of JSON for each request that arrives.

import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';

const [port, log] = process.argv.slice(2);

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const seen = { method: request.method, target: request.url, body: Buffer.concat(chunks).toString() };
  appendFileSync(log, `${JSON.stringify(seen)}\n`);
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ did: seen.target }));
}).listen(Number(port), '127.0.0.1');
