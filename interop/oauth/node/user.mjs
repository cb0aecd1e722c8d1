// A user's browser: it follows redirects with cookies until the client's redirect URI.

/** The URL at the client that the authorization ends with. */
export async function authorize(url, redirect, secret) {
  const jar = new Map();
  let next = { url: new URL(url) };
  for (let step = 0; step < 20; step += 1) {
    if (next.url.href.startsWith(redirect)) return next.url;
    const response = await request(next, jar);
    const location = response.headers.get('location');
    if (location) next = { url: new URL(location, next.url) };
    else next = await login(response, next.url, secret);
  }
  throw new Error(`the authorization did not return to ${redirect}`);
}

async function request({ url, form }, jar) {
  const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
  const method = form ? 'POST' : 'GET';
  const headers = { cookie, accept: 'text/html' };
  const response = await fetch(url, { method, body: form, redirect: 'manual', headers });
  for (const header of response.headers.getSetCookie()) {
    const [, name, value] = header.match(/^([^=]+)=([^;]*)/);
    if (value) jar.set(name, value);
    else jar.delete(name);
  }
  return response;
}

/** Fills in Spring Security's own login page. */
async function login(response, url, secret) {
  const page = await response.text();
  const token = page.match(/name="_csrf"[^>]*value="([^"]+)"/);
  if (!token) throw new Error(`${url}: ${response.status} ${page.slice(0, 400)}`);
  const form = new URLSearchParams({ username: 'ada', password: secret, _csrf: token[1] });
  return { url: new URL('/login', url), form };
}
