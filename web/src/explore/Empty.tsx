import { answered, count } from '../state/answers';
import { extent, showAll } from '../state/times';
import { format, length } from '../text/time';
import { counted } from '../text/numbers';
import { missingNs } from '../ask/Completeness';

/** Why there is nothing, and what to do. */
export function Empty() {
  const answer = count.value.value;
  const all = extent.value;
  if (answer === null) return null;
  const q = String(answered.value.params.q ?? '');
  const missing = missingNs(answer);
  const none = q === '';
  return (
    <div class="none">
      <div>
        <b>{none ? 'Nothing was recorded in these times.' : 'No packet matches.'}</b>
        {none
          ? all !== null && `The archive has ${format(all.from)} to ${format(all.to - 1n)}.`
          : answer.segments_read === 0 && answer.segments > 0
            ? 'No segment of the archive has packets of these times that could match.'
            : `${counted(answer.segments_read, 'segment')} of ${answer.segments} had to be asked.`}
        {missing > 0n && (
          <><br />For {length(missing)} the recording itself is not complete, as said above.</>
        )}
        {all !== null && (
          <><br /><button class="btn" onClick={showAll}>
            Look in the whole archive, {length(all.to - all.from)}
          </button></>
        )}
      </div>
    </div>
  );
}
