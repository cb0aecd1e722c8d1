// A request before it is bytes. Its plain form is what a client of an SDK would send.

import { STATELESS } from '../stack.mjs';
import { PROMPT, READ } from './grants.mjs';
import { Members, toMembers, write } from './json.mjs';
import { CASE_HEADER } from './record.mjs';
import { TOOLS } from './tools.mjs';

const META = 'io.modelcontextprotocol/';
const JSON_RPC = { jsonrpc: '2.0' };

/**
 * A call in its plain form. `call` has the JSON-RPC `method`, and its `name` and `args`. Texts in braces, such as
 * `{session:3}`, stand for what each run has anew.
 */
export function plainDraft({ number, server, rule, version, granted, isInMeta, call }) {
  const params = toMembers(paramsOf(call));
  const isStateless = version === STATELESS;
  const delegation = `{delegation:${granted}}`;
  const proof = rule === 'proven' ? `{proof:${granted}}` : undefined;
  const meta = toMembers({
    ...(isStateless && { [`${META}protocolVersion`]: version, [`${META}clientCapabilities`]: {} }),
    ...(isInMeta && { aat_chain: [delegation], ...(proof && { aat_pop: proof }) }),
  });
  if (meta.members.length) params.set('_meta', meta);
  const headers = [
    ['host', '127.0.0.1'],
    [CASE_HEADER, String(number)],
    ['content-type', 'application/json'],
    ['accept', 'application/json, text/event-stream'],
  ];
  if (!isInMeta) headers.push(['delegation', delegation], ...(proof ? [['delegation-proof', proof]] : []));
  // The first version does not have the header.
  if (version !== '2025-03-26') headers.push(['mcp-protocol-version', version]);
  if (isStateless) headers.push(...mirrors(call));
  else if (server.hasSessions) headers.push(['mcp-session-id', `{session:${granted}}`]);
  return {
    httpMethod: 'POST',
    path: `${rule === 'plain' ? '' : `/${rule}`}/${server.name}/mcp`,
    headers,
    // The id is the case: ids of one session must differ.
    message: new Members([...Object.entries(JSON_RPC), ['id', number], ['method', call.method], ['params', params]]),
    call,
    isInMeta,
    framing: { kind: 'length' },
    changeText: [],
    changeBytes: [],
  };
}

function paramsOf({ method, name, args }) {
  return method === 'tools/call' ? { name, arguments: args } : args;
}

/** The headers that repeat parts of the message. */
function mirrors({ method, name, args }) {
  const headers = [['mcp-method', method]];
  const named = { 'tools/call': name, 'resources/read': args.uri, 'prompts/get': args.name }[method];
  if (named !== undefined) headers.push(['mcp-name', shown(named)]);
  for (const [argument, { 'x-mcp-header': header }] of Object.entries(TOOLS[name]?.properties ?? {})) {
    if (header && argument in args) headers.push([`mcp-param-${header.toLowerCase()}`, shown(String(args[argument]))]);
  }
  return headers;
}

/** A value as MCP puts it into a header. */
export function shown(text) {
  return /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith('=?') ? text : base64(text);
}

/** A text as its bytes, one character each. Line ends would end the header. */
export const inHeader = (text) => Buffer.from(text.replace(/[\r\n]/g, '')).toString('latin1');

export const base64 = (text) => `=?base64?${Buffer.from(text).toString('base64')}?=`;

/** The delegations whose sessions a request names. */
export function sessionsOf({ headers }) {
  return headers.flatMap(([, value]) => [...value.matchAll(/\{session:(\d+)\}/g)]).map(([, place]) => Number(place));
}

/** The delegation that a request presents, if it is one; in its message only where a rule reads it there. */
export function delegationOf(draft, isReadInMeta) {
  const found = valuesOf(draft, 'delegation');
  const chain = found.length || !isReadInMeta ? found : metaOf(draft).aat_chain;
  return Array.isArray(chain) && chain.length === 1 ? filledPlace('delegation', chain[0]) : undefined;
}

/** The delegation that a request's proof is of, if there is one proof. */
export function proofOf(draft, isReadInMeta) {
  const found = valuesOf(draft, 'delegation-proof');
  const proofs = found.length || !isReadInMeta ? found : [metaOf(draft).aat_pop];
  return proofs.length === 1 ? filledPlace('proof', proofs[0]) : undefined;
}

function filledPlace(word, text) {
  const place = typeof text === 'string' && text.trim().match(/^\{(\w+):(\d+)\}$/);
  return place && place[1] === word ? Number(place[2]) : undefined;
}

function valuesOf({ headers }, name) {
  return headers.filter(([one]) => one.toLowerCase() === name).map(([, value]) => value);
}

function metaOf({ body }) {
  try {
    return JSON.parse(body.toString()).params._meta ?? {};
  } catch {
    return {};
  }
}

/** The tool and the arguments, a JSON text, that a proof for this message is about. */
export function provenBy(message, toolOf) {
  const method = message.get('method');
  const params = message.get('params');
  if (method !== 'tools/call') {
    const args = new Members(params.members.filter(([name]) => name !== '_meta'));
    return { tool: { 'resources/read': READ, 'prompts/get': PROMPT }[method] ?? method, args: write(args) };
  }
  return { tool: toolOf(params.get('name')) ?? 'none', args: write(params.get('arguments')) };
}

/** The body, as bytes; undefined if there is none. Once for each draft: changes choose at random. */
export function bodyOf(draft) {
  if (draft.message === undefined) return undefined;
  const text = draft.changeText.reduce((before, change) => change(before), write(draft.message));
  return draft.changeBytes.reduce((before, change) => change(before), Buffer.from(text));
}

/** The request with its body, as bytes. `fill` gives what stands for a text in braces. */
export function encode(draft, fill) {
  const filled = draft.headers.map(([name, value]) => `${name}: ${value.replace(FILLED, fill)}`);
  const framed = frame({ ...draft, body: draft.body && filledBody(draft, fill) });
  const lines = [`${draft.httpMethod} ${draft.path} HTTP/1.1`, ...filled, ...framed.headers, '', ''];
  // Headers may have any byte: `latin1` writes one for each character.
  const head = Buffer.from(lines.join(draft.framing.lineEnd ?? '\r\n'), 'latin1');
  return Buffer.concat([head, framed.body]);
}

/** What is filled, such as `{session:3}`. */
const FILLED = /\{(\w+)(?::(\d+))?\}/g;

function filledBody({ body, isInMeta }, fill) {
  return isInMeta ? Buffer.from(body.toString('latin1').replace(FILLED, fill), 'latin1') : body;
}

function frame({ framing, body }) {
  if (body === undefined) return { headers: [], body: Buffer.alloc(0) };
  const { kind, sizes = [], extra = [], trailers = [], extension = '' } = framing;
  const length = body.length + (framing.wrongBy ?? 0);
  if (kind === 'length') return { headers: [`content-length: ${length}`, ...extra], body };
  const chunks = [];
  for (let place = 0, turn = 0; place < body.length; turn += 1) {
    const part = body.subarray(place, place + (sizes[turn % sizes.length] ?? body.length));
    chunks.push(Buffer.from(`${part.length.toString(16)}${extension}\r\n`), part, Buffer.from('\r\n'));
    place += part.length;
  }
  chunks.push(Buffer.from(`0\r\n${trailers.map((line) => `${line}\r\n`).join('')}\r\n`, 'latin1'));
  return { headers: ['transfer-encoding: chunked', ...extra], body: Buffer.concat(chunks) };
}
