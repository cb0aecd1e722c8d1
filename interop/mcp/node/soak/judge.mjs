// Decides by itself whether a delegation allows what a server ran. It shares no code with the filter.

/** Reads a value as a server wrote it down; see record.mjs. */
export function read(value) {
  if (value === null || typeof value === 'boolean') return value;
  const [type, inner] = value;
  if (type === 's') return inner;
  if (type === 'n') return decimal(inner);
  if (type === 'a') return inner.map(read);
  if (type === 'o') return new Map(inner.map(([name, one]) => [name, read(one)]));
  throw new Error(`a server read something that is no JSON: ${inner}`);
}

/** The same of a value of this program. */
export function ofValue(value) {
  if (typeof value === 'number') return decimal(String(value));
  if (Array.isArray(value)) return value.map(ofValue);
  if (value && typeof value === 'object') {
    return new Map(Object.entries(value).map(([name, inner]) => [name, ofValue(inner)]));
  }
  return value;
}

/** The same of a JSON text. */
export function ofJson(json) {
  return toMaps(JSON.parse(json, (_, value, { source }) => (typeof value === 'number' ? decimal(source) : value)));
}

function toMaps(value) {
  if (Array.isArray(value)) return value.map(toMaps);
  if (value === null || typeof value !== 'object' || value instanceof Decimal) return value;
  return new Map(Object.entries(value).map(([name, inner]) => [name, toMaps(inner)]));
}

/** Why the tool's constraints do not allow these arguments, a Map; undefined if they do. */
export function problemOf(constraints, args) {
  if (!constraints) return 'the delegation does not grant the tool';
  const byName = new Map(Object.entries(constraints));
  for (const [name, value] of args) {
    const constraint = byName.get(name) ?? byName.get('*');
    if (!constraint) return `the delegation does not grant the argument ${JSON.stringify(name)}`;
    if (!allows(constraint, value)) return `the delegation does not allow this ${JSON.stringify(name)}: ${text(value)}`;
  }
  for (const [name, { optional }] of byName) {
    if (name !== '*' && !optional && !args.has(name)) return `the argument ${JSON.stringify(name)} is missing`;
  }
  return undefined;
}

function allows(constraint, value) {
  const isIn = (values) => values.some((one) => text(ofValue(one)) === text(value));
  switch (constraint.constraint_type) {
    case 'exact': return isIn([constraint.value]);
    case 'one_of': return isIn(constraint.values);
    case 'not_one_of': return !isIn(constraint.excluded);
    case 'range': return value instanceof Decimal && isWithin(constraint, value);
    case 'contains': return Array.isArray(value) && isSubset(constraint.required.map(ofValue), value);
    case 'subset': return Array.isArray(value) && isSubset(value, constraint.allowed.map(ofValue));
    case 'wildcard': return true;
    case 'all': return constraint.constraints.every((one) => allows(one, value));
    case 'any': return constraint.constraints.some((one) => allows(one, value));
    default: throw new Error(`no such constraint: ${constraint.constraint_type}`);
  }
}

function isSubset(some, all) {
  const texts = new Set(all.map(text));
  return some.every((one) => texts.has(text(one)));
}

function isWithin({ min, max, min_inclusive: withMin = true, max_inclusive: withMax = true }, value) {
  const fits = (order, isInclusive) => order < 0 || (order === 0 && isInclusive);
  return (min === undefined || fits(decimal(String(min)).compare(value), withMin)) &&
    (max === undefined || fits(value.compare(decimal(String(max))), withMax));
}

/** A text that equal values share, and no others. */
export function text(value) {
  if (value instanceof Decimal) return value.text();
  if (Array.isArray(value)) return `[${value.map(text).join(',')}]`;
  if (value instanceof Map) {
    const members = [...value].map(([name, inner]) => `${JSON.stringify(name)}:${text(inner)}`);
    return `{${members.sort().join(',')}}`;
  }
  return JSON.stringify(value);
}

/** A number, exactly: digits times a power of ten. Without digits, it is none, such as NaN. */
class Decimal {
  constructor(digits, exponent, written) {
    Object.assign(this, { digits, exponent, written });
  }

  text() {
    return this.digits === undefined ? this.written : `${this.digits}e${this.exponent}`;
  }

  /** Below, at or above 0, as this is below, at or above the other; NaN if one of them is no number. */
  compare(other) {
    if (this.digits === undefined || other.digits === undefined) return NaN;
    const exponent = Math.min(this.exponent, other.exponent);
    const [a, b] = [this, other].map((one) => one.digits * 10n ** BigInt(one.exponent - exponent));
    return a < b ? -1 : Number(a > b);
  }
}

function decimal(written) {
  const found = written.match(/^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i);
  if (!found) return new Decimal(undefined, 0, written);
  const [, sign, whole, fraction = '', power = '0'] = found;
  const all = (whole + fraction).replace(/^0+/, '');
  const digits = all.replace(/0+$/, '');
  if (!digits) return new Decimal(0n, 0, written);
  const exponent = Number(power) - fraction.length + all.length - digits.length;
  return new Decimal(BigInt(sign + digits), exponent, written);
}
