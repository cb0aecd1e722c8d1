// Tricks with the JSON-RPC message and its parameters.

import { inHeader } from '../draft.mjs';
import { Members, Raw, escaped, toMembers, write } from '../json.mjs';
import { FORBIDDEN, METHODS, NAMES, PROMPT_NAMES, URIS } from './words.mjs';

/** What a call names: a tool, a prompt or a resource. */
const NAMED = { 'tools/call': ['name', NAMES], 'prompts/get': ['name', PROMPT_NAMES], 'resources/read': ['uri', URIS] };

/** The params, if they still are an object. */
function paramsOf({ message }) {
  const params = message.get('params');
  return params instanceof Members ? params : undefined;
}

/** The same, and the arguments; without them, the params are the arguments. */
function parts(draft) {
  const params = paramsOf(draft);
  const args = params?.get('arguments');
  return { params, args: args instanceof Members ? args : params };
}

/** Sometimes the header says what the body now says. */
function repeatInHeader(draft, name, text, random) {
  const header = draft.headers.find(([one]) => one === name);
  if (header && random.oneIn(2)) header[1] = inHeader(text);
}

function name(draft, random) {
  const params = paramsOf(draft);
  const [member, names] = NAMED[draft.call.method] ?? [];
  if (!params || !member) return;
  const [other, own] = [random.pick(names), params.get(member)];
  random.pick([
    () => params.set(member, other),
    () => params.set(member, other),
    () => params.set(member, escaped(other, random)),
    () => typeof own === 'string' && params.set(member, escaped(own, random)),
    () => params.set(member, toMembers(random.pick([null, 7, true, [own], { own }]))),
    () => params.set(member, new Raw(random.pick(['"\\ud800"', '"pay\\udc00"', '"pay\\u0000"']))),
    () => params.remove(member),
  ])();
  if (params.get(member) === other) repeatInHeader(draft, 'mcp-name', other, random);
}

/** A member again, in any spelling, before or after the other one. */
function repeat(draft, random) {
  const { params, args } = parts(draft);
  const object = random.pick([draft.message, params, params, args, args, args, params?.get('_meta')]);
  if (!(object instanceof Members) || !object.members.length) return;
  const [member, value] = random.pick(object.members);
  const spelled = typeof member === 'string' && random.oneIn(2) ? escaped(member, random) : member;
  const again = random.oneIn(3) ? otherValue(member, value, random) : value;
  object.insert(random.pick([0, object.members.length]), spelled, again);
}

function otherValue(member, value, random) {
  switch (member) {
    case 'method': return random.pick(METHODS);
    case 'name': return random.pick(NAMES);
    case 'params': return toMembers(FORBIDDEN);
    case 'arguments': return toMembers({ amount: 1e6, currency: 'USD', account: 'a2' });
    default: return otherType(value, random);
  }
}

/** The same in another type, or another value. */
function otherType(value, random) {
  const json = write(value);
  const unquoted = json.replace(/^"(.*)"$/, '$1');
  return toMembers(random.pick([
    json, unquoted, new Raw(unquoted || '1'), [value], { value }, null, true, false, 0, 1, '', 'yes', 'on', [], {},
  ]));
}

/** A name in other letters, or one that means something to a language. */
function memberName(draft, random) {
  const { params, args } = parts(draft);
  const object = random.pick([draft.message, params, args, args]);
  const [own, value] = object?.members.length ? random.pick(object.members) : [];
  if (typeof own !== 'string') return;
  const other = random.pick([
    own.toUpperCase(), `${own} `, ` ${own}`, `${own}\u0000`, own.normalize('NFD'), `${own}\u200b`, `${own}[]`,
    own.slice(0, 1).toUpperCase() + own.slice(1), own.replace('a', '\u0430'), `${own}.x`, '', '__proto__',
    'constructor', 'prototype', 'toString', 'hasOwnProperty',
  ]);
  const inherited = toMembers({ [own]: random.pick([value, otherValue(own, value, random)]) });
  random.pick([
    () => object.rename(own, other),
    () => object.insert(0, other, value),
    () => object.members.push([other, value]),
    () => object.rename(own, escaped(own, random)),
    () => object.members.push(['__proto__', inherited]),
    () => object.members.push([new Raw('"\\u005f_proto__"'), inherited]),
    () => object.members.push(['constructor', new Members([['prototype', inherited]])]),
    () => {
      object.remove(own);
      object.members.push(['__proto__', inherited]);
    },
  ])();
}

const MORE_OF_MESSAGE = ['result', 'error', 'Method', 'PARAMS', 'extra', 'meta', '_meta', 'auth'];
const MORE_OF_PARAMS = [
  'task', 'tool', 'args', 'input', 'Name', 'Arguments', 'method', 'params', 'context', 'cursor', 'inputResponses',
  'requestState',
];
const MORE_OF_ARGUMENTS = ['extra', 'amount2', 'admin', 'self', 'ctx', 'kwargs', 'cls', 'return'];

/** A member that the message does not have. */
function moreMembers(draft, random) {
  const { params, args } = parts(draft);
  const [object, names] = random.pick([
    [draft.message, MORE_OF_MESSAGE], [params, MORE_OF_PARAMS], [params, MORE_OF_PARAMS], [args, MORE_OF_ARGUMENTS],
  ]);
  const value = random.pick([{}, null, 1, 'drop', 'tools/call', true, FORBIDDEN, [FORBIDDEN]]);
  object?.members.push([random.pick(names), toMembers(value)]);
}

const STRINGS = [
  '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\ud83d\\ude00"', '"\u2028"', '"\\x41"', '"\t"', '"\\u00"', '"\\v"',
];

function argument(draft, random) {
  const { args } = parts(draft);
  if (!args?.members.length) return;
  const member = random.pick(args.members);
  const [, value] = member;
  const text = typeof value === 'string' ? value : undefined;
  random.pick([
    () => (member[1] = otherType(value, random)),
    () => (member[1] = number(value, random)),
    () => (member[1] = number(value, random)),
    () => (args.members = args.members.filter((one) => one !== member)),
    () => (member[1] = new Raw(random.pick(STRINGS))),
    () => text !== undefined && (member[1] = escaped(text, random)),
    () => text !== undefined && (member[1] = random.pick([
      text.normalize('NFD'), text.toUpperCase(), `${text} `, `${text}\u0000`, `\ufeff${text}`, `${text}\u200b`,
    ])),
  ])();
}

const NUMBERS = [
  '-0', '-0.0', '0e999', '1e400', '-1e400', '1e-400', '9007199254740993', '9007199254740992.0', '1e21', '1E2', '1e+2',
  '0.1000000000000000055511151231257827', `1${'0'.repeat(400)}`, `1${'0'.repeat(5000)}`, `0.${'0'.repeat(400)}1`,
  '0x10', '1_000', 'NaN', 'Infinity', '-Infinity', '1n', '1.5f', '010', '99.99000000000001', '100.00000000000001',
  '4.9e-324', '2e-324', 'true', '"5"', '\u0665', '1 0',
];

/** Another spelling of a number, or another number. */
function number(value, random) {
  const own = typeof value === 'number' ? String(value) : '5';
  const same = /^-?\d+$/.test(own) ? ['.0', 'e0', '0e-1', 'E+0', `.${'0'.repeat(400)}`] : [''];
  return new Raw(random.pick([
    ...same.map((end) => own + end), `${own}0`, `-${own}`, `+${own}`, `0${own}`, `${own}.`, `.${own}`,
    random.pick(NUMBERS), random.pick(NUMBERS), random.pick(NUMBERS),
  ]));
}

const IDS = [
  'null', '1.5', '1e3', '1.0', '-0', '""', '[1]', '{}', 'true', `1${'0'.repeat(40)}`, `"${'x'.repeat(300)}"`, '0', '-1',
  '9007199254740993', '"\\ud800"', '"begin"',
];

function id({ message }, random) {
  if (random.oneIn(4)) message.remove('id');
  else if (random.oneIn(4)) message.set('id', String(message.get('id')));
  else message.set('id', new Raw(random.pick(IDS)));
}

const INITIALIZE = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'x', version: '1' } };

function method(draft, random) {
  const { message } = draft;
  const other = random.pick(METHODS);
  message.set('method', random.oneIn(4) ? escaped(other, random) : other);
  if (random.oneIn(3)) message.remove('id');
  if (random.oneIn(3)) message.set('params', toMembers(random.pick([{}, [], null, INITIALIZE])));
  repeatInHeader(draft, 'mcp-method', other, random);
}

/** A call without an id, which a server may run without an answer; or with a method that says it is none. */
function notification({ message }, random) {
  message.remove('id');
  if (random.oneIn(2)) message.set('method', random.pick(METHODS.filter((one) => one.startsWith('notifications/'))));
}

/** An answer to a request of the server, or half of one. */
function response({ message }, random) {
  const params = message.get('params') ?? null;
  for (const member of random.pick([['method'], ['method', 'params'], []])) message.remove(member);
  message.members.push([random.pick(['result', 'error']), random.pick([new Members([]), params, null])]);
}

function batch(draft, random) {
  const one = draft.message;
  const other = toMembers({ jsonrpc: '2.0', id: 'other', method: 'tools/call', params: FORBIDDEN });
  draft.message = random.pick([
    [one], [one, other], [other, one], [], [[one]], [one, null], [one, one], new Members([['0', one], ['length', 1]]),
  ]);
}

function shape(draft, random) {
  const { message } = draft;
  const params = paramsOf(draft);
  const args = params?.get('arguments');
  const inText = (value) => random.pick([write(value), new Raw(write(write(value)))]);
  random.pick([
    () => params && message.set('params', random.pick([[params], null, inText(params), [params.get('name'), 1]])),
    () => args && params.set('arguments', random.pick([[args], null, inText(args), 7])),
    () => message.set('jsonrpc', random.pick([2, '2.00', '1.0', null, '2.0 ', new Raw('2.0')])),
    () => message.remove(random.pick(['jsonrpc', 'method', 'params'])),
    () => (draft.message = random.pick([inText(message), null, 7, '', new Raw('')])),
  ])();
}

const META = ['protocolVersion', 'clientCapabilities', 'clientInfo', 'tool', 'related-task', 'logLevel']
  .map((one) => `io.modelcontextprotocol/${one}`);
const MORE_META = ['name', 'arguments', 'progressToken', 'traceparent', '__proto__', 'com.example/x'];

function meta(draft, random) {
  const params = paramsOf(draft);
  if (!params) return;
  const own = params.get('_meta') instanceof Members ? params.get('_meta') : new Members([]);
  params.set('_meta', own);
  random.pick([
    () => own.set(random.pick(META), random.pick(['2025-11-25', '2026-07-28', null, new Members([]), '2026-07-28 '])),
    () => own.remove(random.pick(META)),
    () => own.members.push([random.pick(MORE_META), random.pick(['drop', 1, toMembers(FORBIDDEN)])]),
    () => params.set('_meta', random.pick([null, [], 'x', [own]])),
  ])();
}

/** The delegation in the metadata, in other forms and places. */
function delegation(draft, random, { grants }) {
  const params = paramsOf(draft);
  const own = params?.get('_meta');
  if (!params || (own !== undefined && !(own instanceof Members))) return;
  const meta = own ?? new Members([]);
  params.set('_meta', meta);
  const [chain] = meta.get('aat_chain') ?? [`{delegation:${random.below(grants.length)}}`];
  const other = `{delegation:${random.below(grants.length)}}`;
  random.pick([
    () => meta.set('aat_chain', random.pick([[other], [chain, other], chain, [], ['{revoked}'], null, [`${chain}x`]])),
    () => meta.rename('aat_chain', escaped('aat_chain', random)),
    () => meta.set('aat_chain', [chain]),
    () => meta.members.push([escaped('aat_chain', random), [other]]),
    () => meta.set('aat_pop', random.pick(['{proof:0}', '{oldproof}', 'x', ['{proof:0}'], null])),
    () => meta.remove(random.pick(['aat_pop', 'aat_chain'])),
    () => params.set('aat_chain', [other]),
    () => draft.message.set('_meta', new Members([['aat_chain', [other]]])),
    () => draft.headers.push(['delegation', random.pick([chain, other])]),
    () => (draft.headers = draft.headers.filter(([one]) => !one.startsWith('delegation'))),
  ])();
  draft.isInMeta = true;
}

const LENGTHS = [1000, 4000, 5000, 30_000, 65_000, 65_300, 65_400, 65_536, 66_000, 70_000, 130_000];
const HUGE = 1_100_000;
const DEPTHS = [10, 70, 74, 75, 76, 77, 78, 79, 80, 81, 82, 200, 1000, 5000];

/** Large and deep arguments, up to the limits and beyond. */
function size(draft, random) {
  const { args } = parts(draft);
  const depth = random.pick(DEPTHS);
  const many = (names) => new Members(Array.from({ length: 1500 }, (_, place) => [`k${place % names}`, place]));
  args?.set(random.pick(['memo', 'options', 'text', 'extra', 'account']), random.pick([
    () => 'x'.repeat(random.oneIn(20) ? HUGE : random.pick(LENGTHS)),
    () => 'x'.repeat(random.pick(LENGTHS)),
    () => new Raw(`${'['.repeat(depth)}${']'.repeat(depth)}`),
    () => new Raw(`${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`),
    () => new Raw(`${'['.repeat(depth)}`),
    () => Array.from({ length: 2000 }, (_, place) => place),
    () => many(1500),
    () => many(1499),
  ])());
}

const TRICKS = {
  'another name': name,
  'a repeated member': repeat,
  'a name of a member': memberName,
  'a member more': moreMembers,
  'another argument': argument,
  'another id': id,
  'another method': method,
  'a notification': notification,
  'a response': response,
  'a batch': batch,
  'another shape': shape,
  'other metadata': meta,
  'a delegation in the metadata': delegation,
  'a large value': size,
};

/** Another trick may have left a message that is no object. */
const onObject = (trick) => (draft, random, context) =>
  draft.message instanceof Members && trick(draft, random, context);

export const MESSAGE_TRICKS = Object.fromEntries(Object.entries(TRICKS).map(([one, trick]) => [one, onObject(trick)]));
