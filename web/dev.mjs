// For work on the page: serves dist/ as a server would, and passes all else on to one that runs.
//
//   node build.mjs --watch & node dev.mjs http://127.0.0.1:8417
import { createServer, request } from 'node:http';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const dist = join(dirname(fileURLToPath(import.meta.url)), 'dist');
const target = new URL(process.argv[2] ?? 'http://127.0.0.1:8417');
const port = Number(process.argv[3] ?? 8418);
const PAGES = ['', 'explore', 'recorder', 'explain', 'jobs', 'audit', 'nodes'];
const KINDS = { html: 'text/html', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

createServer((asked, answer) => {
  const path = asked.url.split('?')[0];
  const name = PAGES.includes(path.slice(1)) ? 'index.html' : path.replace('/page/', '');
  if (name === 'index.html' || path.startsWith('/page/')) {
    try {
      const bytes = readFileSync(join(dist, name.replaceAll('..', '')));
      const kind = KINDS[name.split('.').pop()] ?? 'text/plain';
      answer.writeHead(200, { 'content-type': kind, 'content-security-policy': POLICY });
      answer.end(bytes);
    } catch {
      answer.writeHead(404).end();
    }
    return;
  }
  const { method, headers, url } = asked;
  const on = { host: target.hostname, port: target.port, method, headers, path: url };
  const passed = request(on, (reply) => {
    answer.writeHead(reply.statusCode, reply.headers);
    reply.pipe(answer);
  });
  passed.on('error', () => answer.destroy());
  answer.on('close', () => passed.destroy());
  asked.pipe(passed);
}).listen(port, '127.0.0.1', function listening() {
  console.log(`http://127.0.0.1:${this.address().port}/`);
});
