// Each view is read by one call and shown by one function; a view that cannot be read says so and keeps what it had.

const known = { relay: null, dependencies: null, instance: null, aside: 0, told: null };
const AT_RISK = 0.5;
const WARN = 0.1;
const LATE_SECONDS = 60;

const moodOfShare = (part) => (part >= AT_RISK ? "bad" : part >= WARN ? "warn" : null);

function showRelay(relay) {
  known.relay = relay;
  remember(relay.leases);
  const rows = [...relay.leases, ...relay.missingLeases.map((token) => ({ lease: token, missing: true }))];
  keep(find("leases").tBodies[0], rows, (lease) => `${lease.lease} ${lease.missing ?? ""}`, leaseRow, showLease);
  find("leases").hidden = !rows.length;
  find("leases-empty").hidden = rows.length > 0;
  const [forwarded, stored] = [gained("position"), gained("newest")];
  const backlog = relay.leases.reduce((sum, lease) => sum + lease.lag, 0);
  const oldest = Math.max(...relay.leases.map((lease) => lease.oldestWaitingSeconds ?? -1), -1);
  const used = Math.max(...relay.leases.map((lease) => lease.ttlUsed), 0);
  write(find("tile-forwarded"), rate(forwarded));
  write(find("tile-stored"), rate(stored));
  write(find("tile-backlog"), relay.leases.length ? count(backlog) : "–");
  write(find("tile-oldest"), oldest < 0 ? "nothing" : span(oldest));
  mood(find("tile-oldest"), moodOfShare(used));
  const average = relay.averageWaitingSeconds === null ? "" : `, ${span(relay.averageWaitingSeconds)} on average`;
  write(find("tile-ttl"), oldest < 0 ? "" : `${share(used)} of the TTL used${average}`);
  const parked = aggregates.map((each) => [relay[each.count] ?? 0, each.path]);
  const sum = parked.reduce((total, [number]) => total + number, 0);
  write(find("tile-parked"), count(sum));
  mood(find("tile-parked"), sum ? "bad" : null);
  write(find("tile-parked-of"), parked.map(([number, path]) => `${count(number)} ${path}`).join(", "));
  draw("forwarded", forwarded);
  draw("stored", stored);
  draw("backlog", backlog);
}

function leaseRow() {
  const tr = row(["Lease", "Owner", "Backlog", "Oldest", "Tx/s", "TTL used"], [2, 3, 4]);
  cell(tr, 1).classList.add("mono");
  return tr;
}

function showLease(tr, lease) {
  write(cell(tr, 0), lease.lease);
  if (lease.missing) {
    put(cell(tr, 1), badge("no lease", "bad"));
    for (const index of [2, 3, 4, 5]) write(cell(tr, index), "–");
    return;
  }
  if (lease.owner) write(cell(tr, 1), lease.owner);
  else put(cell(tr, 1), badge("nobody", lease.lag ? "warn" : null));
  write(cell(tr, 2), count(lease.lag));
  write(cell(tr, 3), lease.oldestWaitingSeconds === null ? "–" : span(lease.oldestWaitingSeconds));
  write(cell(tr, 4), rate(gained("position", lease.lease)));
  let bar = cell(tr, 5).querySelector("b");
  if (!bar) {
    bar = make("b");
    cell(tr, 5).classList.add("share");
    cell(tr, 5).replaceChildren(make("i", { "aria-hidden": true }, bar), make("span"));
  }
  bar.style.width = `${Math.min(100, 100 * lease.ttlUsed)}%`;
  mood(cell(tr, 5), moodOfShare(lease.ttlUsed));
  write(cell(tr, 5).lastElementChild, share(lease.ttlUsed));
}

function showInstance(instance) {
  const first = known.instance === null;
  known.instance = instance;
  aggregates = instance.aggregates;
  write(find("tile-instance"), rate(instance.forwardedPerSecond));
  write(find("tile-instance-of"), `${count(instance.forwarded)} since ${when(instance.startedAt)}`);
  write(find("service-name"), `· ${aggregates.map((each) => each.path).join(", ")}`);
  const settings = [["instance", instance.id], ["started", when(instance.startedAt)], ...Object.entries(instance.settings)];
  keep(find("settings"), settings, ([name]) => name, () => make("div", {}, make("dt"), make("dd")), (line, [name, value]) => {
    write(line.firstElementChild, name);
    write(line.lastElementChild, value ?? "not set");
  });
  if (!first) return;
  showLists(instance.lists);
  find("events-type").replaceChildren(...aggregates.map((each) => make("option", { value: each.path }, each.type)));
  find("events-type-box").hidden = aggregates.length < 2;
}

function showDependencies({ items }) {
  known.dependencies = items;
  const create = () => make("li", {}, make("span", { class: "badge" }), make("span"), make("span", { class: "faint" }), make("span", { class: "why" }));
  keep(find("health"), items, (each) => each.name, create, (line, each) => {
    const [state, name, took, why] = line.children;
    write(state, each.ok ? "ok" : "away");
    mood(state, each.ok ? "good" : "bad");
    write(name, each.name);
    write(took, each.ok ? `${count(each.milliseconds)} ms` : "");
    write(why, each.detail ?? "");
    why.hidden = each.ok;
  });
}

/** What somebody should look at, the worst first: `[mood, text]`. */
function findings() {
  const found = [];
  const { relay, dependencies, aside } = known;
  for (const each of dependencies ?? []) {
    if (!each.ok) found.push(["bad", `${each.name} cannot be used: ${each.detail}`]);
  }
  if (relay?.missingLeases.length) found.push(["bad", `No lease for ${many(relay.missingLeases.length, "partition")} (${relay.missingLeases.join(", ")}): nothing of it is forwarded.`]);
  for (const lease of relay?.leases ?? []) {
    if (lease.lag && lease.state === "owner_silent") found.push(["warn", `Lease ${lease.lease} waits: its owner does not renew it.`]);
    if (lease.oldestWaitingSeconds > LATE_SECONDS) found.push([moodOfShare(lease.ttlUsed) ?? "warn", `Lease ${lease.lease} is late: its oldest change waits for ${span(lease.oldestWaitingSeconds)}, ${share(lease.ttlUsed)} of the TTL.`]);
  }
  for (const each of relay?.failures ?? []) found.push(["warn", `Why events wait, told at ${when(each.at)}: ${each.detail}`]);
  for (const each of relay ? aggregates : []) {
    const number = relay[each.count];
    if (number) found.push(["bad", `${many(number, `${each.type} is`, `${each.path} are`)} parked.`]);
  }
  if (aside) found.push(["warn", `${many(aside, "message is", "messages are")} set aside.`]);
  const unknown = parts.filter((part) => part.unknown).map((part) => part.name);
  if (unknown.length) found.push(["warn", `Not known now: ${unknown.join(", ")}.`]);
  return found.sort(([a], [b]) => (a === b ? 0 : a === "bad" ? -1 : 1));
}

function showFindings(problem) {
  const found = problem ? [["bad", problem], ...findings()] : findings();
  if (!found.length && !(known.relay && known.dependencies)) return; // nothing is well before it is known
  const name = found.length ? found[0][0] : "good";
  mood(find("banner"), name);
  const texts = found.map(([, text]) => text);
  if (known.told !== texts.length) say(texts.length ? texts.join(" ") : "All is well");
  known.told = texts.length;
  write(find("banner-title"), found.length ? `${many(found.length, "thing")} to look at` : "All is well");
  keep(find("findings"), texts, (text) => text, () => make("li"), write);
  document.title = found.length ? `(${found.length}) Operations` : "Operations";
}
