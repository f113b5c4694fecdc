/** What can be done, each with its key: the keys, their list and the palette are all made of this. */

import { copy } from '../parts/announce';
import { show } from '../parts/Dialog';
import { isOpen as timesOpen } from '../ask/TimesMenu';
import { guess } from '../ask/words';
import { zoomTo } from '../ask/Completeness';
import { download } from '../ask/download';
import { around, conversation, copyAsFilter, downloadPacket, onlyThis } from '../explore/PacketPane';
import { followFlow } from '../explore/Flows';
import { list } from '../explore/Packets';
import { closePacket, currentFlow } from '../explore/selection';
import { whole } from '../explore/Overview';
import { histogram } from '../state/answers';
import { isRecording, mayExtract } from '../state/session';
import { move, setLive, showAll, shown, zoom } from '../state/times';
import { toggle } from '../state/theme';
import { type Page, change, view } from '../state/view';
import { parse } from '../text/time';
import { tell } from '../parts/announce';

export interface Action {
  group: string;
  name: string;
  /** As it is written; two letters with a blank are pressed one after the other. */
  key: string;
  act: () => void;
  /** Handled where the focus is; here it is only listed. */
  listed?: boolean;
}

function nextLoss(): void {
  const all = whole.peek()?.intervals ?? histogram.peek().value?.intervals ?? [];
  const end = shown.peek()?.to ?? 0n;
  const next = all.find((one) => (parse(one.from) ?? 0n) >= end) ?? all[0];
  if (next === undefined) tell('Nothing is missing in these times');
  else zoomTo(next);
}

/** The caret goes to the end: what is typed goes on with what is there. */
function focusFilter(): void {
  const field = document.getElementById('q');
  if (!(field instanceof HTMLInputElement)) return;
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}

const focusList = (key: string) => {
  list.peek()?.focus();
  document.querySelector('.vlist')?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
};
const needs = (act: () => void) => () => {
  if (mayExtract.peek()) act();
  else tell('Taking packets out needs the role extract');
};
const goTo = (page: Page) => () => change({ page }, 'push');

export const ACTIONS: Action[] = [
  { group: 'Ask', name: 'Filter', key: '/', act: focusFilter },
  { group: 'Ask', name: 'Times', key: 'T', act: () => {
    if (document.getElementById('times')) timesOpen.value = true;
  } },
  { group: 'Ask', name: 'Other language', key: 'S', act: () => {
    const { q, syntax } = view.peek();
    change({ syntax: (syntax ?? guess(q)) === 'pcap' ? 'wireshark' : 'pcap' }, 'push');
  } },
  { group: 'Ask', name: 'Live', key: 'L', act: () => {
    if (isRecording.peek() || view.peek().live) setLive(!view.peek().live);
    else tell('Nothing is being recorded');
  } },
  { group: 'Ask', name: 'Filter before, after', key: '↑ ↓', act: () => undefined, listed: true },
  { group: 'Timeline', name: 'Earlier', key: '←', act: () => move(-0.25) },
  { group: 'Timeline', name: 'Later', key: '→', act: () => move(0.25) },
  { group: 'Timeline', name: 'Zoom in', key: '+', act: () => zoom(0.5) },
  { group: 'Timeline', name: 'Zoom out', key: '-', act: () => zoom(2) },
  { group: 'Timeline', name: 'All that is kept', key: '0', act: showAll },
  { group: 'Timeline', name: 'Back', key: 'Backspace', act: () => history.back() },
  { group: 'Timeline', name: 'Next loss or gap', key: 'N', act: nextLoss },
  { group: 'Timeline', name: 'Packets or bytes', key: 'B', act: () => {
    change({ by: view.peek().by === 'packets' ? 'bytes' : 'packets' }, 'push');
  } },
  { group: 'List', name: 'Down', key: 'J', act: () => focusList('j') },
  { group: 'List', name: 'Up', key: 'K', act: () => focusList('k') },
  { group: 'List', name: 'Page down, up', key: 'Space', act: () => focusList(' ') },
  { group: 'List', name: 'First', key: 'Home', act: () => focusList('Home') },
  { group: 'List', name: 'Last', key: 'End', act: () => focusList('End') },
  { group: 'List', name: 'Open', key: 'Enter', act: () => focusList('Enter') },
  { group: 'List', name: 'Close', key: 'Esc', act: () => {
    if (view.peek().p !== undefined) closePacket();
  } },
  { group: 'List', name: 'Packets', key: '1', act: () => change({ tab: 'packets' }, 'push') },
  { group: 'List', name: 'Conversations', key: '2', act: () => change({ tab: 'flows' }, 'push') },
  { group: 'Packet', name: 'Only this value', key: 'I', act: () => onlyThis(false) },
  { group: 'Packet', name: 'Without this value', key: 'E', act: () => onlyThis(true) },
  { group: 'Packet', name: 'Follow the conversation', key: 'F', act: () => {
    const flow = currentFlow.peek();
    if (view.peek().tab === 'flows' && flow !== null) void followFlow(flow);
    else conversation();
  } },
  { group: 'Packet', name: 'What was around it', key: 'A', act: around },
  { group: 'Packet', name: 'Copy as filter', key: 'C', act: copyAsFilter },
  { group: 'Packet', name: 'This packet as a file', key: 'Shift D', act: needs(downloadPacket) },
  { group: 'Take away', name: 'Download', key: 'D', act: needs(() => show('download')) },
  { group: 'Take away', name: 'Download as pcapng at once', key: '', act: needs(() => void download('pcapng')) },
  { group: 'Take away', name: 'Open in Wireshark', key: 'W', act: needs(() => show('wireshark')) },
  { group: 'Take away', name: 'Command', key: 'Shift C', act: () => show('commands') },
  { group: 'Take away', name: 'Copy the link', key: 'Y', act: () => void copy(location.href, 'Link') },
  { group: 'Pages', name: 'Explore', key: 'G E', act: goTo('explore') },
  { group: 'Pages', name: 'Recorder', key: 'G R', act: goTo('recorder') },
  { group: 'Pages', name: 'Explain', key: 'G X', act: goTo('explain') },
  { group: 'Pages', name: 'Jobs', key: 'G J', act: goTo('jobs') },
  { group: 'Pages', name: 'Audit', key: 'G A', act: goTo('audit') },
  { group: 'Pages', name: 'Nodes', key: 'G N', act: goTo('nodes') },
  { group: 'Pages', name: 'Anything', key: 'Ctrl K', act: () => show('palette') },
  { group: 'Pages', name: 'Light or dark', key: 'Shift T', act: toggle },
  { group: 'Pages', name: 'Keys', key: '?', act: () => show('keys') },
];
