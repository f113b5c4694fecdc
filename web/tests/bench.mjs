// How fast the page is, on an archive that exists. Prints a table.
//
//   TAPDEX=target/release/tapdex node web/tests/bench.mjs ARCHIVE
import { cpus } from 'node:os';
import { count, openBrowser, openPage, place, serve } from './place.mjs';

const archive = process.argv[2];
if (archive === undefined) throw new Error('which archive?');
const LOADS = 10;
const FILTERS = [
  'tcp port 443', 'udp port 53', 'host 10.1.1.173', 'net 10.1.0.0/16 and not port 22', 'icmp or arp',
  'tcp[tcpflags] & tcp-rst != 0', 'vlan and tcp', 'ip.addr == 203.0.113.1 && tcp', 'len > 1000',
  'src net 10.0.0.0/8 and not dst net 10.0.0.0/8',
];

const here = place();
const server = await serve(archive, here.path('state'), '--listen', '127.0.0.1:0');
const browser = await openBrowser();
const rows = [];
const round = (n) => (n < 10 ? n.toFixed(1) : n.toFixed(0));
const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
function row(what, numbers, unit, limit) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const [half, most] = [at(sorted, 0.5), at(sorted, 0.9)];
  rows.push(`| ${what} | ${round(half)} | ${round(sorted[0])} | ${round(most)} | ${round(sorted.at(-1))} | ${unit} | ${limit} |`);
}

// From the request to the first text on the screen, with nothing in the browser's cache.
const paints = [];
const counts = [];
for (let n = 0; n < LOADS; n += 1) {
  const page = await openPage(browser, new URL('/explore?q=tcp', server.url).href);
  await count(page);
  const [paint, counted] = await page.evaluate(() => [
    performance.getEntriesByName('first-contentful-paint')[0].startTime, performance.now(),
  ]);
  paints.push(paint);
  counts.push(counted);
  await page.context().close();
}
row('first paint', paints, 'ms', '1,000');
row('first count on the screen, at most', counts, 'ms', '');

const page = await openPage(browser, new URL('/explore?q=tcp', server.url).href);
await count(page);
const settle = () => page.waitForFunction(() => !document.querySelector('.time').classList.contains('busy')
  && !document.querySelector('.tops').classList.contains('stale'), undefined, { timeout: 120_000 });
await settle();

// From the last key to the frame that shows the number.
const answers = [];
for (const filter of [...FILTERS, ...FILTERS]) {
  await page.fill('#q', '');
  await page.click('#q');
  await page.keyboard.type(filter.slice(0, -1));
  await page.waitForTimeout(400);
  // Ready before the key comes.
  await page.evaluate(() => { window.seen = new Promise((done) => {
    const line = document.querySelector('.sum');
    const before = document.querySelector('#count').dataset.number;
    let start = 0;
    document.querySelector('#q').addEventListener('input', () => { start = performance.now(); }, { once: true });
    new MutationObserver((_, self) => {
      const is = document.querySelector('#count').dataset.number;
      if (start === 0 || is === before || line.classList.contains('stale')) return;
      self.disconnect();
      requestAnimationFrame(() => done(performance.now() - start));
    }).observe(line, { subtree: true, attributes: true, childList: true, characterData: true });
    setTimeout(() => done(20_000), 20_000);
  }); });
  await page.keyboard.type(filter.slice(-1));
  answers.push(await page.evaluate(() => window.seen));
  console.error(`${answers.at(-1).toFixed(0)} ms: ${filter}`);
  await settle();
}
row('last key to the count on the screen', answers, 'ms', '150');

// Frames while something moves, by the time between them.
async function frames(move) {
  const gaps = await page.evaluate(async (kind) => {
    const times = [];
    let on = true;
    const tick = (now) => {
      times.push(now);
      if (on) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
    const list = document.querySelector('.vlist');
    const chart = document.querySelector('#timeline');
    const box = chart.getBoundingClientRect();
    for (let n = 0; n < 120; n += 1) {
      if (kind === 'scroll') list.scrollTop += 330;
      else {
        chart.dispatchEvent(new WheelEvent('wheel', {
          deltaY: n % 40 < 20 ? -100 : 100, clientX: box.left + box.width / 2, clientY: box.top + 40,
          bubbles: true, cancelable: true, shiftKey: kind === 'move',
        }));
      }
      await new Promise((done) => setTimeout(done, 16));
    }
    on = false;
    return times.slice(1).map((now, n) => now - times[n]);
  }, move);
  const sum = gaps.reduce((a, b) => a + b, 0);
  return [1000 * gaps.length / sum, Math.max(...gaps)];
}
for (const [what, kind, limit] of [
  ['zoom by wheel', 'zoom', '30'], ['move by wheel', 'move', '30'], ['scrolling all packets', 'scroll', '60'],
]) {
  const found = [];
  for (let n = 0; n < 3; n += 1) {
    await page.goto(new URL('/explore?sort=time', server.url).href);
    await count(page);
    await settle();
    found.push(await frames(kind));
  }
  row(`${what}, frames`, found.map(([rate]) => rate), '/s', limit);
  row(`${what}, longest frame`, found.map(([, longest]) => longest), 'ms', '');
}
const [elements, lines, heap] = await page.evaluate(() => [
  document.querySelectorAll('*').length, document.querySelectorAll('.vr').length,
  performance.memory?.usedJSHeapSize / 1e6,
]);
row('elements', [elements], '', '3,000');
row('rows in the page', [lines], '', '80');
row('heap', [heap], 'MB', '200');

console.log(`${cpus().length} x ${cpus()[0].model}, ${new Date().toISOString().slice(0, 10)}\n`);
console.log('| what | median | least | 9 of 10 | most | unit | limit |\n|---|---:|---:|---:|---:|---|---:|');
console.log(rows.join('\n'));
await browser.close();
await server.stop();
here.remove();
