// JSON texts that JSON.stringify does not write: repeated members, other spellings, and what is no JSON at all.

/** A text that is written as it is. */
export class Raw {
  constructor(text) {
    this.text = text;
  }
}

/** An object: its members in their order. Names may repeat, and may be Raw. */
export class Members {
  constructor(members) {
    this.members = members;
  }

  static of(object) {
    return new Members(Object.entries(object));
  }

  has(name) {
    return this.members.some(([one]) => one === name);
  }

  get(name) {
    return this.members.find(([one]) => one === name)?.[1];
  }

  /** Changes the member, or adds it. */
  set(name, value) {
    const member = this.members.find(([one]) => one === name);
    if (member) member[1] = value;
    else this.members.push([name, value]);
  }

  /** Adds a member at this place, even if there is one with the name. */
  insert(place, name, value) {
    this.members.splice(place, 0, [name, value]);
  }

  rename(name, other) {
    const member = this.members.find(([one]) => one === name);
    if (member) member[0] = other;
  }

  remove(name) {
    this.members = this.members.filter(([one]) => one !== name);
  }
}

/** The same values, with Members for objects. */
export function toMembers(value) {
  if (Array.isArray(value)) return value.map(toMembers);
  if (value === null || typeof value !== 'object' || value instanceof Raw || value instanceof Members) return value;
  return new Members(Object.entries(value).map(([name, inner]) => [name, toMembers(inner)]));
}

export function write(value) {
  if (value instanceof Raw) return value.text;
  if (Array.isArray(value)) return `[${value.map(write).join(',')}]`;
  if (value instanceof Members) {
    return `{${value.members.map(([name, inner]) => `${write(name)}:${write(inner)}`).join(',')}}`;
  }
  return JSON.stringify(value);
}

/** A string with escapes that JSON allows but does not need. */
export function escaped(text, random) {
  const units = [...Array(text.length).keys()].map((place) => {
    const hex = text.charCodeAt(place).toString(16).padStart(4, '0');
    const unit = random.oneIn(2) ? hex.toUpperCase() : hex;
    return random.oneIn(2) ? `\\u${unit}` : JSON.stringify(text[place]).slice(1, -1);
  });
  return new Raw(`"${units.join('').replaceAll('/', random.pick(['/', '\\/']))}"`);
}
