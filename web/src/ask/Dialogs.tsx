import { useState } from 'preact/hooks';
import { Choose } from '../parts/Choose';
import { Command } from '../parts/Command';
import { Dialog, show } from '../parts/Dialog';
import { mayExtract } from '../state/session';
import { count } from '../state/answers';
import { counted } from '../text/numbers';
import { all, curl, tapdex } from './commands';
import { download } from './download';

export function Commands() {
  return (
    <Dialog label="Commands" wide>
      <h2 class="hd">The same from a shell</h2>
      <div class="bd">
        {all(mayExtract.value).map(([label, text]) => <Command label={label} text={text} />)}
      </div>
    </Dialog>
  );
}

export function InWireshark() {
  return (
    <Dialog label="Open in Wireshark" wide>
      <h2 class="hd">Open in Wireshark</h2>
      <div class="bd">
        <p>Download the capture and open it, or pass it on as it is found:</p>
        <Command label="With tapdex" text={`${tapdex('extract', '-w', '-')} | wireshark -k -i -`} />
        <Command label="With curl" text={`${curl('/api/v1/packets')} | wireshark -k -i -`} />
        <p>Or have the archive in Wireshark's list of interfaces:</p>
        <Command label="Once" text={`tapdex extcap --install --archive ${location.origin}/`} />
      </div>
    </Dialog>
  );
}

export function Download() {
  const [format, setFormat] = useState<'pcapng' | 'pcap'>('pcapng');
  const [reason, setReason] = useState('');
  const [most, setMost] = useState('');
  return (
    <Dialog label="Download">
      <form class="bd" onSubmit={(event) => {
        event.preventDefault();
        show(null);
        void download(format, reason, most);
      }}>
        <h2 class="hd">Download {counted(count.value.value?.count ?? 0, 'packet')}</h2>
        <Choose label="Format" value={format} set={setFormat}
          of={[['pcapng', 'pcapng'], ['pcap', 'pcap']]} />
        <label class="field">At most so many packets; the first ones in order of time
          <input value={most} inputMode="numeric" pattern="[0-9]*" placeholder="all"
            onInput={(event) => setMost(event.currentTarget.value)} />
        </label>
        <label class="field">Why, for the audit log
          <input value={reason} maxLength={1000}
            onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
        <p class="dim">pcap has no interfaces and says nothing about losses.</p>
        <div class="row"><span class="grow" /><button class="btn pri" data-first>Download</button></div>
      </form>
    </Dialog>
  );
}
