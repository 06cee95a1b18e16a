// Each view is read by one call and shown by one function; a view that cannot be read says so and keeps what it had.

const known = { relay: null, dependencies: null, instance: null, aside: 0, announced: null };
const AT_RISK = 0.5;
const WARN = 0.1;
const LATE_SECONDS = 60;

const moodOfShare = (part) => (part >= AT_RISK ? "bad" : part >= WARN ? "warn" : null);

function showRelay(relay) {
  known.relay = relay;
  const rows = [...relay.leases, ...relay.missingLeases.map((token) => ({ lease: token, missing: true }))];
  keep(find("leases").tBodies[0], rows, (lease) => `${lease.lease} ${lease.missing ?? ""}`, leaseRow, showLease);
  find("leases").hidden = !rows.length;
  find("leases-empty").hidden = rows.length > 0;
  const backlog = relay.leases.reduce((sum, lease) => sum + lease.lag, 0);
  const oldest = Math.max(...relay.leases.map((lease) => lease.oldestWaitingSeconds ?? -1), -1);
  const used = Math.max(...relay.leases.map((lease) => lease.ttlUsed), 0);
  write(find("tile-backlog"), relay.leases.length ? count(backlog) : "–");
  write(find("tile-oldest"), oldest < 0 ? "nothing" : span(oldest));
  mood(find("tile-oldest"), moodOfShare(used));
  write(find("tile-ttl"), oldest < 0 ? "" : `${share(used)} of the TTL used`);
  const parked = Object.entries(relay.parkedAggregates);
  write(find("tile-parked"), count(relay.parkedEvents));
  mood(find("tile-parked"), relay.parkedEvents ? "bad" : null);
  write(find("tile-parked-of"), parked.map(([type, number]) => `${count(number)} ${type}`).join(", "));
}

function leaseRow() {
  const tr = row(["Lease", "Owner", "Backlog", "Oldest", "TTL used"], [2, 3]);
  cell(tr, 1).classList.add("mono");
  return tr;
}

function showLease(tr, lease) {
  write(cell(tr, 0), lease.lease);
  if (lease.missing) {
    put(cell(tr, 1), badge("no lease", "bad"));
    for (const index of [2, 3, 4]) write(cell(tr, index), "–");
    return;
  }
  if (lease.owner) write(cell(tr, 1), lease.owner);
  else put(cell(tr, 1), badge("nobody", lease.lag ? "warn" : null));
  write(cell(tr, 2), count(lease.lag));
  write(cell(tr, 3), lease.oldestWaitingSeconds === null ? "–" : span(lease.oldestWaitingSeconds));
  let bar = cell(tr, 4).querySelector("b");
  if (!bar) {
    bar = make("b");
    cell(tr, 4).classList.add("share");
    cell(tr, 4).replaceChildren(make("i", { "aria-hidden": true }, bar), make("span"));
  }
  bar.style.width = `${Math.min(100, 100 * lease.ttlUsed)}%`;
  mood(cell(tr, 4), moodOfShare(lease.ttlUsed));
  write(cell(tr, 4).lastElementChild, share(lease.ttlUsed));
}

function showInstance(instance) {
  const first = known.instance === null;
  known.instance = instance;
  write(find("tile-instance"), count(instance.forwarded));
  write(find("tile-instance-of"), `since ${when(instance.startedAt)}`);
  write(find("service-name"), `· ${instance.aggregates.join(", ")}`);
  const settings = [["instance", instance.id], ["started", when(instance.startedAt)], ...Object.entries(instance.settings)];
  keep(find("settings"), settings, ([name]) => name, () => make("div", {}, make("dt"), make("dd")), (line, [name, value]) => {
    write(line.firstElementChild, name);
    write(line.lastElementChild, value ?? "not set");
  });
  if (!first) return;
  find("events-type").replaceChildren(...instance.aggregates.map((type) => make("option", { value: type }, type)));
  find("events-type-box").hidden = instance.aggregates.length < 2;
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

/** What each subscriber has set aside, and when its read model was last compared with its source. */
function showSubscribers({ items }) {
  const sum = (state) => items.reduce((total, each) => total + (each.setAside[state] ?? 0), 0);
  const [waiting, refused] = [sum("waiting"), sum("refused")];
  known.aside = waiting + refused;
  write(find("tile-aside"), count(known.aside));
  mood(find("tile-aside"), refused ? "bad" : waiting ? "warn" : null);
  write(find("tile-aside-of"), `${count(waiting)} tried again, ${count(refused)} refused`);
  const create = () => make("li", {}, badge("subscriber", null), make("span"), make("span", { class: "faint" }));
  keep(find("subscribers"), items, (each) => each.name, create, ({ children: [, name, walk] }, each) => {
    write(name, each.name);
    write(walk, each.lastWalk ? `last walk ${when(each.lastWalk.endedAt)}, healed ${count(each.lastWalk.healed)}` : "");
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
  for (const each of relay?.failures ?? []) found.push(["warn", `Why events wait, reported at ${when(each.at)}: ${each.detail}`]);
  if (relay?.parkedEvents) found.push(["bad", `${many(relay.parkedEvents, "event is", "events are")} parked.`]);
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
  if (known.announced !== texts.length) say(texts.length ? texts.join(" ") : "All is well");
  known.announced = texts.length;
  write(find("banner-title"), found.length ? `${many(found.length, "thing")} to look at` : "All is well");
  keep(find("findings"), texts, (text) => text, () => make("li"), write);
  document.title = found.length ? `(${found.length}) Operations` : "Operations";
}
