// Tricks with headers: those that repeat parts of the message, and those that say what the body is.

import { gzipSync } from 'node:zlib';
import { base64, inHeader, shown } from '../draft.mjs';
import { METHODS, NAMES } from './words.mjs';

/** Changes a header: its value, its spelling, or how often it is there. */
function change(name, others) {
  return (draft, random, context) => {
    const place = draft.headers.findIndex(([one]) => one === name);
    const value = draft.headers[place]?.[1];
    const other = random.pick(others(draft, random, context));
    random.pick([
      () => draft.headers.splice(place, place < 0 ? 0 : 1),
      () => replace(draft, name, inHeader(other)),
      () => replace(draft, name, shown(other)),
      () => replace(draft, name, variant(value ?? other, random)),
      () => replace(draft, name, variant(other, random)),
      () => draft.headers.push([respelled(name, random), inHeader(other)]),
      () => draft.headers.unshift([respelled(name, random), inHeader(other)]),
      () => draft.headers.push([respelled(name, random), value ?? inHeader(other)]),
      () => place >= 0 && (draft.headers[place][0] = respelled(name, random)),
    ])();
  };
}

function replace(draft, name, value) {
  draft.headers = draft.headers.filter(([one]) => one !== name);
  draft.headers.push([name, value]);
}

/** A value that some reader takes for this one, or for another one. */
function variant(text, random) {
  const encoded = base64(text);
  return inHeader(random.pick([
    encoded, encoded.replace(/=*\?=$/, '?='), encoded.replace('base64', 'BASE64'), `${encoded}${base64('')}`,
    encoded.replace('=?base64?', '=?utf-8?B?'), ` ${encoded} `, `=?base64?${encoded}?=`, encoded.slice(0, -1),
    `=?base64?${Buffer.from(text).toString('base64url')}?=`, '=?base64?!!!?=', '=?base64?//4=?=', '=?base64??=',
    text.toUpperCase(), ` \t${text}\t `, `"${text}"`, `${text},${text}`, `${text};q=1`, encodeURIComponent(text),
    text.normalize('NFD'), '', `${text}\u00a0`, `${text}\u00ad`, `${text}\u200b`,
  ]));
}

function respelled(name, random) {
  return random.pick([
    name, name, name.toUpperCase(), name.replaceAll('-', '_'), name.replace(/(^|-)./g, (one) => one.toUpperCase()),
    `${name}\u00ad`, ` ${name}`, `${name} `, name.replace('-', '--'), name.replaceAll('-', '.'),
  ]);
}

const PARAMETERS = ['account', 'currency', 'level', 'on', '', 'other'];
const values = ({ call: { args } }) =>
  [...Object.values(args).map(String), '5', '+5', '5.0', '0x5', '5e0', 'EUR', 'true', ' ', '1e400'];

function parameter(draft, random) {
  change(`mcp-param-${random.pick(PARAMETERS)}`, values)(draft, random);
}

const VERSIONS = [
  '2026-07-28', '2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05', '2027-01-01', 'draft', '2026-07-28, 2025-11-25',
  '',
];

const sessions = (_, random, { grants }) =>
  [`{session:${random.below(grants.length)}}`, `{session:${random.below(grants.length)}}`, 'x', ''];

function delegations({ headers }, random, { grants }) {
  const other = `{delegation:${random.below(grants.length)}}`;
  const own = headers.find(([name]) => name === 'delegation')?.[1] ?? other;
  return [
    other, other, '{revoked}', `${own}~${other}`, `${own}, ${other}`, own.slice(0, -1), `${own}x`, `${own}~`, 'x', '',
  ];
}

const TYPES = [
  undefined, '', 'text/plain', 'application/json; charset=utf-8', 'application/json;charset=UTF-16', 'APPLICATION/JSON',
  'application/json; charset=latin1', 'application/json; charset=utf-7', 'application/json;', 'application/json-rpc',
  'application/json, text/plain', 'text/plain, application/json', 'application/vnd.api+json', '*/*', 'json',
  'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'application/json; charset="utf-8"; x=y',
  'application/json\u00a0', 'text/plain; x=application/json', 'application/json ; charset=utf8',
];

function contentType(draft, random) {
  const type = random.pick(TYPES);
  const place = draft.headers.findIndex(([one]) => one === 'content-type');
  const header = ['content-type', type];
  if (random.oneIn(4)) draft.headers.splice(random.pick([place, place + 1]), 0, ['content-type', type ?? 'text/plain']);
  else draft.headers.splice(place, 1, ...(type === undefined ? [] : [header]));
}

const ENCODINGS = ['gzip', 'deflate', 'br', 'identity', 'GZIP', 'x-gzip', 'gzip, identity', 'aws-chunked', ''];

function contentEncoding(draft, random) {
  draft.headers.push(['content-encoding', random.pick(ENCODINGS)]);
  if (random.oneIn(2)) draft.changeBytes.push((body) => gzipSync(body));
}

const ACCEPTED = [
  undefined, '*/*', 'application/json', 'text/event-stream', 'text/html', 'application/json;q=0, text/event-stream',
];

function accept(draft, random) {
  const value = random.pick(ACCEPTED);
  draft.headers = draft.headers.filter(([one]) => one !== 'accept');
  if (value) draft.headers.push(['accept', value]);
}

/** Headers that some server obeys instead of the request. */
const OVERRIDES = [
  ['x-http-method-override', ['GET', 'DELETE', 'POST']], ['x-method-override', ['DELETE']],
  ['x-original-url', ['/mcp', '/open/x']], ['x-rewrite-url', ['/mcp']], ['x-envoy-original-path', ['/open/x']],
  ['x-forwarded-prefix', ['/open']], ['x-forwarded-host', ['admin.example']], ['forwarded', ['host=x']],
  ['x-delegation-tool', ['soak.pay', 'soak.drop']], ['x_delegation_tool', ['soak.drop']], ['x-delegation-id', ['x']],
  ['origin', ['http://evil.example', 'null']], ['host', ['evil.example', '127.0.0.1:9', 'localhost']],
  ['connection', ['mcp-name', 'close', 'keep-alive, content-type', 'delegation', 'mcp-session-id']],
  ['upgrade', ['websocket', 'h2c']], ['expect', ['100-continue']], ['te', ['trailers']], ['last-event-id', ['1', 'x']],
  ['cookie', ['mcp-session-id=1']], ['authorization', ['Bearer x', '']], ['transfer-encoding', ['identity']],
  ['content-length', ['0', '5']],
];

function override(draft, random) {
  const [name, texts] = random.pick(OVERRIDES);
  draft.headers.push([random.oneIn(3) ? respelled(name, random) : name, random.pick(texts)]);
}

export const HEADER_TRICKS = {
  'the method in a header': change('mcp-method', () => METHODS),
  'the name in a header': change('mcp-name', () => NAMES),
  'an argument in a header': parameter,
  'the version in a header': change('mcp-protocol-version', () => VERSIONS),
  'the session in a header': change('mcp-session-id', sessions),
  'the delegation': change('delegation', delegations),
  'the content type': contentType,
  'the content encoding': contentEncoding,
  'what is accepted': accept,
  'a header that overrides': override,
};
