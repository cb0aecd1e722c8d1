// Arguments for a call: mostly allowed ones, and those just beyond.

import { ACCOUNTS, CURRENCIES, NUMBERS, TAGS } from './grants.mjs';
import { PROMPTS, RESOURCES, TOOLS } from './tools.mjs';

/** Any value of each argument, by its name. */
const ANY = {
  amount: NUMBERS, currency: CURRENCIES, account: ACCOUNTS, memo: ['', '1', 'hello', 'caf\u00e9', 'null'],
  on: [true, false], level: [-1, 0, 4, 5, 9, 10], tags: [[], ['x'], ['x', 'y', 'z'], ['X', '']],
  options: [{}, { a: { b: [1, null] } }], text: ACCOUNTS, uri: RESOURCES, name: PROMPTS,
};
/** The arguments of each tool. */
const ARGUMENTS = {
  read: ['uri'], prompt: ['name'],
  ...Object.fromEntries(Object.entries(TOOLS).map(([name, { properties }]) => [name, Object.keys(properties)])),
};
/** What every tool accepts under a `*`. */
const MORE = [['extra', 1], ['caf\u00e9', 'x'], ['Amount', null], ['extra', {}]];

/** Arguments for this tool. `constraints` are those of the delegation, if it grants the tool. */
export function argumentsFor(name, constraints, random) {
  const args = {};
  const required = TOOLS[name]?.required ?? ARGUMENTS[name] ?? TOOLS.pay.required;
  for (const argument of ARGUMENTS[name] ?? ARGUMENTS.pay) {
    const constraint = constraints?.[argument];
    const isNeeded = required.includes(argument) || (constraint && !constraint.optional && !random.oneIn(20));
    const isSent = isNeeded || (constraint ? random.oneIn(2) : random.oneIn(30));
    if (isSent) args[argument] = value(argument, constraint, random);
  }
  if (constraints?.['*'] && random.oneIn(4)) Object.assign(args, Object.fromEntries([random.pick(MORE)]));
  return args;
}

function value(argument, constraint, random) {
  const near = constraint && !random.oneIn(12) ? values(constraint, argument, random) : [];
  return random.pick(near.length ? near : ANY[argument]);
}

/** Values that the constraint is about. */
function values(constraint, argument, random) {
  switch (constraint.constraint_type) {
    case 'exact': return [constraint.value];
    case 'one_of': return constraint.values;
    case 'not_one_of': return random.oneIn(4) ? constraint.excluded : ANY[argument];
    case 'range': return bounds(constraint, argument, random);
    case 'subset': return around(constraint.allowed, random.pick(TAGS));
    case 'contains': return around(constraint.required, 'more');
    case 'all': case 'any': return values(random.pick(constraint.constraints), argument, random);
    default: return ANY[argument];
  }
}

/** Arrays with these elements, one less and one more. */
const around = (elements, more) => [elements, elements.slice(1), [...elements, more], []];

function bounds({ min, max }, argument, random) {
  const isWhole = argument === 'level';
  const [low, high] = [min ?? (isWhole ? -9 : -1e308), max ?? (isWhole ? 99 : 1e308)];
  const middle = isWhole ? Math.floor((low + high) / 2) : low / 2 + high / 2;
  const at = [low, high, middle, middle, middle];
  if (random.oneIn(3)) at.push(...[low, high].flatMap((bound) => (isWhole ? [bound - 1, bound + 1] : besides(bound))));
  return at.filter(Number.isFinite);
}

/** The next doubles on both sides, and others near. */
function besides(number) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, number);
  const bits = view.getBigInt64(0);
  const near = number === 0 ? [5e-324, -5e-324] : [bits - 1n, bits + 1n].map((one) => {
    view.setBigInt64(0, one);
    return view.getFloat64(0);
  });
  return [...near, number + 1, number - 1, number + 0.01];
}
