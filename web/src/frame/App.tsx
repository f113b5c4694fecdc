import { Commands, Download, InWireshark } from '../ask/Dialogs';
import { Ask } from '../ask/Ask';
import { BarTable } from '../explore/BarTable';
import { Explore } from '../explore/Explore';
import { ValueMenu } from '../explore/ValueMenu';
import { locked } from '../net/server';
import { open } from '../parts/Dialog';
import { said, toast } from '../parts/announce';
import { Audit } from '../pages/Audit';
import { Explain } from '../pages/Explain';
import { FirstRun, isDone } from '../pages/FirstRun';
import { Jobs } from '../pages/Jobs';
import { Nodes } from '../pages/Nodes';
import { Recorder } from '../pages/Recorder';
import { SignIn } from '../pages/SignIn';
import { status } from '../state/session';
import { filters } from '../state/history';
import { view, write } from '../state/view';
import { KeyList } from './KeyList';
import { Palette } from './Palette';
import { Strip } from './Strip';
import { TopBar } from './TopBar';

/** Whether nothing was asked yet: then there are questions to start with. */
function isFirst(): boolean {
  const { page } = view.value;
  if (page !== 'explore' || isDone.value || write(view.value) !== '/explore') return false;
  const now = status.value;
  if (now === null || (now.kept?.packets ?? 0) === 0) return false;
  return now.demo || filters.value.length === 0;
}

function Page() {
  switch (view.value.page) {
    case 'recorder': return <Recorder />;
    case 'jobs': return <Jobs />;
    case 'audit': return <Audit />;
    case 'nodes': return <Nodes />;
    case 'explain': return <><Ask /><Explain /></>;
    case 'explore': return <><Ask />{isFirst() ? <FirstRun /> : <Explore />}</>;
  }
}

function Above() {
  switch (open.value) {
    case 'palette': return <Palette />;
    case 'keys': return <KeyList />;
    case 'commands': return <Commands />;
    case 'wireshark': return <InWireshark />;
    case 'download': return <Download />;
    case 'bars': return <BarTable />;
    default: return null;
  }
}

/** The frame: top bar, page, strip; and what is above them. */
export function App() {
  if (locked.value) return <div class="frame"><TopBar /><SignIn /><Strip /></div>;
  return (
    <>
      <div class="frame">
        <TopBar />
        <main class="page" id="main"><Page /></main>
        <Strip />
      </div>
      <Above />
      <ValueMenu />
      {toast.value !== '' && <div class="toast" aria-hidden="true">{toast.value}</div>}
      <div class="vh" role="status" aria-live="polite" id="said">{said.value}</div>
    </>
  );
}
