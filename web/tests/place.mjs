// What the tests of the page share: a real server on a real archive, and a real Chromium.
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
export const artefacts = join(root, 'web/artefacts');
mkdirSync(artefacts, { recursive: true });

/** The tapdex that is tested: that of TAPDEX, or one that cargo has built. */
export const tapdexPath = [
  process.env.TAPDEX, join(root, 'target/release/tapdex'), join(root, 'target/debug/tapdex'),
].find((path) => path !== undefined && existsSync(path));

/** The browser: that of CHROMIUM, or one of the system. */
export const browserPath = [
  process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome',
].find((path) => path !== undefined && existsSync(path));

export function tapdex(...args) {
  const options = { encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'ignore'] };
  return execFileSync(tapdexPath, args, options);
}

/** A folder of its own, with traffic in it that is the same for everybody. */
export function place() {
  const folder = mkdtempSync(join(tmpdir(), 'tapdex-page-'));
  return {
    folder,
    path: (name) => join(folder, name),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Starts a server; ends with its address and a way to stop it. */
export function serve(archive, state, ...more) {
  const args = ['serve', '--state', state, '--quiet', ...more];
  if (archive !== null) args.push('-r', archive);
  return start(args);
}

/** Starts a command that prints an address when it is ready. */
export function start(args, stdin = 'ignore') {
  const child = spawn(tapdexPath, args, { stdio: [stdin, 'pipe', 'inherit'] });
  const ended = new Promise((done) => child.on('exit', done));
  return new Promise((ready, failed) => {
    let text = '';
    child.stdout.on('data', (part) => {
      text += part;
      const found = /https?:\/\/\S+/.exec(text);
      if (!found) return;
      const stop = () => { child.kill('SIGINT'); return ended; };
      if (process.env.PAGE_DEV) before(found[0], stop).then((url) => ready({ url, direct: found[0], child, stop }));
      else ready({ url: found[0], direct: found[0], child, stop });
    });
    child.on('exit', () => failed(new Error(`tapdex ${args.join(' ')} ended: ${text}`)));
  });
}

/** For work on the page: dist/ in front of a server that has another page in it. */
const proxies = new Map();
function before(url) {
  if (proxies.has(url)) return proxies.get(url);
  const child = spawn(process.execPath, [join(root, 'web/dev.mjs'), url, '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  process.on('exit', () => child.kill());
  child.unref();
  const ready = new Promise((done) => child.stdout.once('data', (text) => { child.stdout.unref(); done(String(text).trim()); }));
  proxies.set(url, ready);
  return ready;
}

export async function openBrowser() {
  const args = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath: browserPath, args });
}

/** A page of its own; what goes wrong in it is kept, and which addresses it asks. */
export async function openPage(browser, url, options = {}) {
  const size = { width: 1440, height: 900 };
  const context = await browser.newContext({ viewport: size, acceptDownloads: true, ...options });
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  const page = await context.newPage();
  const problems = [];
  const asked = new Set();
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('console', (line) => {
    // A refused or wrong question is an answer, but the browser reports it.
    const isAnswer = /status of 4\d\d|ERR_CONNECTION_REFUSED|ERR_EMPTY/.test(line.text());
    if (line.type() === 'error' && !isAnswer) problems.push(line.text());
  });
  page.on('request', (request) => asked.add(new URL(request.url()).origin));
  page.problems = problems;
  page.asked = asked;
  if (url !== undefined) await page.goto(url);
  return page;
}

/** Takes a picture of a state. */
export async function picture(page, name) {
  await page.screenshot({ path: join(artefacts, `${name}.png`) });
}

/** The number on the screen, once it is the answer to what is asked. */
export async function count(page) {
  await page.waitForFunction(() => {
    const line = document.querySelector('.sum');
    return line && !line.classList.contains('stale') && /\d/.test(document.querySelector('#count').textContent);
  });
  const text = await page.textContent('#count');
  return Number(text.replaceAll(',', ''));
}

/** Types a filter as a person does, and waits for its number. */
export async function ask(page, filter) {
  await page.fill('#q', '');
  await page.click('#q');
  await page.keyboard.type(filter);
  await page.waitForFunction((text) => new URLSearchParams(location.search).get('q') === text, filter);
  await page.waitForTimeout(90);
  return count(page);
}
