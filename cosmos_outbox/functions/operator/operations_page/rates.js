// Transactions a second, of all instances together: what the leases' positions gained between two looks.

const RATE_SECONDS = 15;
const SAMPLES = 60;

const looks = [];
const lines = { forwarded: [], stored: [], backlog: [] };

/** Remember where each lease is at this look. */
function remember(leases) {
  const at = performance.now() / 1000;
  looks.push({ at, leases: new Map(leases.map((each) => [each.lease, each])) });
  while (looks.length > 2 && looks[1].at <= at - RATE_SECONDS) looks.shift();
}

/** After a pause the old looks tell nothing about now. */
function forgetLooks() {
  looks.length = 0;
}

/**
 * How much the number called `name` of one lease, or of all, gained a second; null: not known yet. A lease that is not in
 * both looks, or whose number went back, does not count: its partition was split, or its lease was made again.
 */
function gained(name, lease = null) {
  if (looks.length < 2) return null;
  const [first, last] = [looks[0], looks[looks.length - 1]];
  const seconds = last.at - first.at;
  let sum = null;
  for (const [token, now] of last.leases) {
    const then = first.leases.get(token);
    if ((lease !== null && token !== lease) || !then || then[name] === null || now[name] === null || now[name] < then[name]) continue;
    sum = (sum ?? 0) + now[name] - then[name];
  }
  return sum === null || seconds <= 0 ? null : sum / seconds;
}

function draw(name, number) {
  const line = lines[name];
  line.push(number ?? 0);
  if (line.length > SAMPLES) line.shift();
  spark(find(`spark-${name}`), line);
}
