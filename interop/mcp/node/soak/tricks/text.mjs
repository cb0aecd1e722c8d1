// Tricks with the text of the body and its encoding.

import { FORBIDDEN } from './words.mjs';

/** One of the pieces behind a comma, colon or bracket, which may be in a string. */
function insert(pieces) {
  return (draft, random) => draft.changeText.push((text) => {
    const places = [...text.matchAll(/[,:{}[\]]/g)].map(({ index }) => index + 1);
    const place = places.length ? random.pick(places) : 0;
    return text.slice(0, place) + random.pick(pieces) + text.slice(place);
  });
}

const COMMENTS = ['/**/', '/* x */', '// x\n', '# x\n', '<!-- -->', '/*"*/'];
const SPACES = [
  ' ', '\n', '\t\r\n', '\u00a0', '\u000b', '\u000c', '\ufeff', '\u2003', '\u0085', '\u0000', '\\', '\u0007',
];

const OTHER_CALL = JSON.stringify({ jsonrpc: '2.0', id: 'x', method: 'tools/call', params: FORBIDDEN });

/** More text around it, or less of it. */
function around(draft, random) {
  draft.changeText.push((text) => random.pick([
    `${text}${text}`, `${text} ${OTHER_CALL}`, `${text}\n${OTHER_CALL}`, `${OTHER_CALL}\n${text}`, `${text}\u0000`,
    `${text},`, `${text}}`, `${text}//`, `${text} x`, `\u0000${text}`, ` \t\r\n${text}\r\n`, `\u000b${text}`,
    `\u000c${text}`, `\u00a0${text}`, `\u2028${text}`, `${text}\u001a`, `)]}',\n${text}`, `data: ${text}\n\n`,
    `\u001e${text}`, `for(;;);${text}`, `(${text})`, text.slice(0, -1), text.slice(1), `${text}\n\n\n`,
    `"${text.replaceAll('"', '\\"')}"`, `message=${encodeURIComponent(text)}`,
    `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`,
  ]));
}

/** What some languages and readers take for JSON. */
const SYNTAX = [
  [/"/g, "'"], [/,/, ',,'], [/}$/, ',}'], [/"(\w+)":/, '$1:'], [/"(\w+)":/, "'$1':"], [/:/, '='], [/:/, ' : '],
  [/,/, ' ,\n\t'], [/true/, 'True'], [/null/, 'None'], [/"/, '\u201c'], [/,/, ';'], [/{/, '{,'], [/\]/, ',]'],
  [/"(\w)/, '"\\$1'], [/"id":\d+/, '"id":undefined'],
];

function syntax(draft, random) {
  const [found, other] = random.pick(SYNTAX);
  draft.changeText.push((text) => text.replace(found, other));
}

const SIZES = [65_535, 65_536, 65_537, 65_600];

/** White space up to the limit of bodies, and beyond. */
function padding(draft, random) {
  const size = random.pick(SIZES);
  draft.changeBytes.push((body) => {
    const space = Buffer.alloc(Math.max(0, size - body.length), ' ');
    return Buffer.concat(random.oneIn(2) ? [body, space] : [space, body]);
  });
}

const CHARSETS = ['utf-16', 'utf-16le', 'utf-32', 'iso-8859-1', 'utf-8-sig', 'utf-7'];
/** Invalid UTF-8, other forms of characters, and controls. */
const BYTES = [
  [0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xc1, 0xa1], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82], [0x80], [0], [0x7f],
  [0xc2, 0x85],
];

function encoding(draft, random) {
  const utf16 = (body) => Buffer.from(body.toString(), 'utf16le');
  const mark = (bytes, body) => Buffer.concat([Buffer.from(bytes), body]);
  draft.changeBytes.push((body) => random.pick([
    () => mark([0xef, 0xbb, 0xbf], body),
    () => utf16(body),
    () => mark([0xff, 0xfe], utf16(body)),
    () => utf16(body).swap16(),
    () => mark([0xfe, 0xff], utf16(body).swap16()),
    () => Buffer.from(Array.from(body.toString(), (one) => [one.codePointAt(0), 0, 0, 0]).flat()),
    () => Buffer.from(body.toString(), 'latin1'),
    () => Buffer.concat([body, Buffer.from([0xff])]),
    () => inString(body, random.pick(BYTES), random),
    () => inString(body, random.pick(BYTES), random),
  ])());
  const type = draft.headers.find(([one]) => one === 'content-type');
  if (type && random.oneIn(3)) type[1] = `application/json; charset=${random.pick(CHARSETS)}`;
}

/** These bytes behind a quote. */
function inString(body, bytes, random) {
  const quotes = [...body.keys()].filter((place) => body[place] === 0x22);
  const place = quotes.length ? random.pick(quotes) + 1 : 0;
  return Buffer.concat([body.subarray(0, place), Buffer.from(bytes), body.subarray(place)]);
}

export const TEXT_TRICKS = {
  'a comment': insert(COMMENTS),
  'white space': insert(SPACES),
  'text around the message': around,
  'another syntax': syntax,
  'a large body': padding,
  'another encoding': encoding,
};
