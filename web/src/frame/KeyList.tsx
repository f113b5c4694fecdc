import { Dialog } from '../parts/Dialog';
import { ACTIONS } from './actions';
import { setSingles, singles } from './keys';

/** All keys. */
export function KeyList() {
  const groups = [...new Set(ACTIONS.map(({ group }) => group))];
  return (
    <Dialog label="Keys" wide>
      <div class="hd">
        <h2>Keys</h2><span class="grow" />
        <label class="dim check">
          <input type="checkbox" checked={singles.value}
            onChange={(event) => setSingles(event.currentTarget.checked)} /> single keys on
        </label>
      </div>
      <div class="kg">
        {groups.map((group) => (
          <div>
            <h3>{group}</h3>
            {ACTIONS.filter((one) => one.group === group && one.key !== '').map(({ name, key }) => (
              <p><span>{name}</span><kbd>{key}</kbd></p>
            ))}
          </div>
        ))}
      </div>
      <p class="kf dim"><kbd>F6</kbd> goes round the panes: filter, timeline, tops, list, packet.</p>
    </Dialog>
  );
}
