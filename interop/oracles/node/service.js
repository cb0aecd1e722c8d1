// An Express application that answers with what it has read: node service.js express4|express5 PORT
'use strict';

const [version, port] = process.argv.slice(2);
const express = require(version);

const { version: number } = require(`${version}/package.json`);

const app = express();
// Trusts X-Forwarded-Host, as behind a proxy.
app.set('trust proxy', true);

const QUERY = ['full', 'full_export', 'q', 'limit', 'note', 'teaser', 'mode'];

function text(value) {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function reading(handler) {
  return (request, response) => {
    const query = {};
    for (const name of QUERY) {
      const value = request.query?.[name];
      if (value !== undefined) query[name] = text(value);
    }
    const headers = {};
    for (const name of Object.keys(request.headers)) headers[name] = request.get(name);
    const captures = { ...request.params };
    // Trailers are available once the body is read.
    request.resume();
    request.on('end', () => {
      response.json({
        oracle: version,
        version: `Express ${number}, Node.js ${process.versions.node}`,
        handler,
        captures,
        method: request.method,
        host: request.hostname ?? null,
        query,
        headers,
        trailers: request.trailers,
      });
    });
  };
}

app.get('/orders', reading('list_orders'));
app.post('/orders', reading('create_order'));
app.all('/admin/users', reading('admin_users'));
app.all('/preview', reading('preview'));
app.all('/export', reading('export'));
app.all('/files/:name', reading('file'));
app.all('/tenant', reading('tenant'));
app.all('/search', reading('search'));
app.all('/article', reading('article'));
app.all('/beta', reading('beta'));
app.all('/site', reading('site'));
app.all('/cache', reading('cache'));
app.all('/public', reading('public'));
app.all('/Reports/Q3', reading('report'));
app.use((request, response, next) => reading('none')(request, response, next));
app.use((error, request, response, next) => reading('error')(request, response, next));

app.listen(Number(port), '127.0.0.1');
