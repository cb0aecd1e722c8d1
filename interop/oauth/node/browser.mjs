// A person's browser without scripts: it keeps cookies and follows redirects.

export class Browser {
  #cookies = new Map();
  #fetch;

  constructor(send = fetch) {
    this.#fetch = send;
  }

  /** Goes to a URL, by POST if there is a form, until a page, or until a URL that begins like this. */
  async go(url, { form, until } = {}) {
    let next = { url: new URL(url), form };
    for (let step = 0; step < 20; step += 1) {
      if (until && next.url.href.startsWith(until)) return { url: next.url };
      const response = await this.#request(next);
      const location = response.headers.get('location');
      if (!location) {
        return { url: next.url, status: response.status, headers: response.headers, page: await response.text() };
      }
      next = { url: new URL(location, next.url) };
    }
    throw new Error(`too many redirects from ${url}`);
  }

  get(url, name) {
    return this.#of(new URL(url)).get(name);
  }

  set(url, name, value) {
    this.#of(new URL(url)).set(name, value);
  }

  async #request({ url, form }) {
    const jar = this.#of(url);
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
    const headers = { accept: 'text/html', cookie };
    const response = await this.#fetch(url, { method: form ? 'POST' : 'GET', body: form, redirect: 'manual', headers });
    for (const header of response.headers.getSetCookie()) {
      const [, name, value] = header.match(/^([^=]+)=([^;]*)/);
      if (value) jar.set(name, value);
      else jar.delete(name);
    }
    return response;
  }

  /** The cookies of an origin: here, ports tell servers apart. */
  #of({ origin }) {
    if (!this.#cookies.has(origin)) this.#cookies.set(origin, new Map());
    return this.#cookies.get(origin);
  }
}

/** The hidden fields of a page's forms, and the first entry of each list. */
export function fields(page) {
  const hidden = [...page.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)"/g)];
  const lists = [...page.matchAll(/<select name="([^"]+)"><option value="([^"]+)"/g)];
  return Object.fromEntries([...hidden, ...lists].map(([, name, value]) => [name, value]));
}

/** A text as the pages have it. */
export const escaped = (text) => text.replace(/[&"'<>]/g, (character) => `&#${character.charCodeAt(0)};`);
