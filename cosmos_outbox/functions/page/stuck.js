// The one list of what is stuck, a page at a time; what is selected stays selected on every page.

const PAGE = 50;
const ALL_PAGE = 100;
const COLUMNS = ["", "What", "Aggregate", "Event", "State", "Reason", "Age", "Tries", ""];
const STATES = { inTheWay: ["in the way", "bad"], alone: ["of no aggregate", "bad"], refused: ["refused", "bad"] };

const stuck = { items: [], selected: new Map(), tokens: [null], next: null, collecting: null };

const nameOf = (item) => {
  const what = `${item.kind} ${item.sequence ?? item.eventId ?? item.id}`;
  return item.aggregateId ? `${what} of ${item.aggregateType} ${item.aggregateId}` : what;
};

const actions = [
  { name: "Retry", on: (item) => item.state !== "alone", begin: retry },
  { name: "Discard", on: (item) => item.kind !== "event" || item.state !== "waiting", begin: discard },
];

/** Look at the page again. Throws Refused. */
async function lookAtStuck() {
  const token = stuck.tokens.at(-1);
  const found = await call(`stuck?${query({ pageSize: PAGE, continuationToken: token })}`);
  if (token !== stuck.tokens.at(-1)) return; // the page was turned in between
  stuck.items = found.items;
  stuck.next = found.continuationToken;
  if (!stuck.items.length && stuck.tokens.length > 1) stuck.tokens = [null];
  showStuck();
}

async function turn(step) {
  if (step > 0 && stuck.next) stuck.tokens.push(stuck.next);
  if (step < 0 && stuck.tokens.length > 1) stuck.tokens.pop();
  await guarded(lookAtStuck);
  find("stuck").scrollIntoView({ block: "nearest" });
}

function showStuck() {
  const { items, selected, tokens, next, collecting } = stuck;
  keep(find("stuck").tBodies[0], items, (item) => item.id, stuckRow, showItem);
  find("stuck-empty").hidden = items.length > 0;
  find("stuck-tools").hidden = find("stuck").hidden = !items.length && !selected.size;
  find("stuck-pager").hidden = tokens.length < 2 && !next;
  find("stuck-back").disabled = tokens.length < 2;
  find("stuck-forth").disabled = !next;
  write(find("stuck-where"), `Page ${tokens.length}`);
  const shown = items.filter((item) => selected.has(item.id)).length;
  find("stuck-page").checked = shown > 0 && shown === items.length;
  find("stuck-page").indeterminate = shown > 0 && shown < items.length;
  write(find("stuck-count"), selected.size || collecting ? `${count(selected.size)} selected` : "");
  write(find("stuck-all"), collecting ? "Stop selecting" : "Select all pages");
  find("stuck-all").hidden = !collecting && !next && tokens.length < 2;
  find("stuck-none").hidden = !selected.size;
  for (const action of actions) find(`stuck-${action.name}`).disabled = ![...selected.values()].some(action.on);
}

function stuckRow(item) {
  const tr = row(COLUMNS, [6, 7]);
  const current = () => stuck.items.find((each) => each.id === item.id) ?? item;
  const box = make("input", { type: "checkbox", on: { change: () => select([current()], box.checked) } });
  cell(tr, 0).append(box);
  cell(tr, 5).classList.add("reason");
  cell(tr, 6).classList.add("nowrap");
  cell(tr, 8).classList.add("actions");
  for (const { name, begin } of actions) {
    cell(tr, 8).append(make("button", { type: "button", class: "small", on: { click: () => begin([current()]) } }, `${name} …`));
  }
  return tr;
}

function showItem(tr, item) {
  const [name, box] = [nameOf(item), cell(tr, 0).firstElementChild];
  box.setAttribute("aria-label", `Select ${name}`);
  box.checked = stuck.selected.has(item.id);
  tr.classList.toggle("selected", box.checked);
  write(cell(tr, 1), item.subscriber ? `${item.kind} at ${item.subscriber}` : item.kind);
  if (cell(tr, 2).textContent !== (item.aggregateId ?? "none")) cell(tr, 2).replaceChildren(item.aggregateId ? idButton(item) : "none");
  writeName(cell(tr, 3), item.action ?? "not known", item.sequence ? ` ·\u00a0${item.sequence}` : "");
  tr.children[3].title = `Event ${item.eventId ?? "without an id"}`;
  put(cell(tr, 4), badge(...(STATES[item.state] ?? [item.kind === "event" ? "waits behind" : "is tried again", "warn"])));
  write(cell(tr, 5), item.reason);
  write(cell(tr, 6), span(serviceClock.secondsSince(item.since)));
  write(cell(tr, 7), item.attempts);
  [...cell(tr, 8).children].forEach((button, index) => {
    button.hidden = !actions[index].on(item);
    button.setAttribute("aria-label", `${actions[index].name} ${name}`);
  });
}

const idButton = ({ aggregateType, aggregateId }) =>
  make("button", { type: "button", class: "link mono", "aria-label": `Events of ${aggregateType} ${aggregateId}`, on: { click: () => openEvents(aggregateType, aggregateId) } }, aggregateId);

function select(items, wanted) {
  for (const item of items) {
    if (wanted) stuck.selected.set(item.id, item);
    else stuck.selected.delete(item.id);
  }
  showStuck();
}

/** Read all pages and select what is on them; the button stops it. */
async function selectEverything() {
  if (stuck.collecting) return stuck.collecting.abort();
  stuck.collecting = new AbortController();
  const stop = stuck.collecting.signal;
  await guarded(async () => {
    let token = null;
    do {
      const found = await patiently(() => call(`stuck?${query({ pageSize: ALL_PAGE, continuationToken: token })}`, { stop }), stop);
      select(found.items, true);
      token = found.continuationToken;
    } while (token && !stop.aborted);
  });
  stuck.collecting = null;
  showStuck();
  say(`${many(stuck.selected.size, "row")} selected`);
}

/** Begin an action on what is selected, without what it cannot be done to. */
const begin = (action) => action.begin([...stuck.selected.values()].filter(action.on));

/** Send the events of each aggregate, and apply each message: of the events of one aggregate, one call sends all. */
async function retry(items) {
  const wanted = new Map();
  for (const item of items) {
    const key = item.kind === "event" ? `${item.aggregateType}/${item.aggregateId}` : item.id;
    wanted.set(key, [...(wanted.get(key) ?? []), item]);
  }
  const steps = [...wanted.values()].map((group) => ({
    group,
    label: group[0].kind === "event" ? `${group[0].aggregateType} ${group[0].aggregateId}` : nameOf(group[0]),
    // Of a refused effect 503 may mean that it was run, and that this could not be recorded.
    once: group[0].state === "refused",
    run: async (stop) => {
      const { retried, remaining } = await call(`stuck/${group[0].id}/retry`, { method: "POST", stop });
      return `${count(retried)} sent or applied${remaining ? "; the rest follows by itself" : ""}`;
    },
  }));
  await act("Retry", steps, "Remove the cause first. All parked events of an aggregate are sent, in order. A message is applied after those of its aggregate that come before it. An effect that may have been done is run again: find out first what became of it.");
}

async function discard(items) {
  const steps = items.map((item) => ({
    group: [item],
    label: nameOf(item),
    run: async (stop, reason) => {
      await call(`stuck/${item.id}/discard`, { method: "POST", body: { reason }, stop });
      return "discarded";
    },
  }));
  await act("Discard", steps, "What is discarded is given up for good; in the place of an event subscribers get a notice. This cannot be undone.", true);
}

/** Ask for consent and do it; what succeeded leaves the selection. */
async function act(verb, steps, text, danger = false) {
  const title = `${verb} ${count(steps.length)}`;
  const consent = await ask({ title, text, what: steps.map((step) => step.label), danger });
  if (consent) work(title, steps, consent.reason, (step) => select(step.group, false));
}

for (const action of actions) find(`stuck-${action.name}`).addEventListener("click", () => begin(action));
find("stuck-page").addEventListener("change", (event) => select(stuck.items, event.target.checked));
find("stuck-all").addEventListener("click", selectEverything);
find("stuck-none").addEventListener("click", () => (stuck.selected.clear(), showStuck()));
find("stuck-back").addEventListener("click", () => turn(-1));
find("stuck-forth").addEventListener("click", () => turn(1));
