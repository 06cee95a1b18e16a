// The past of one aggregate: what the service knows of each event, by name; the values stay in the store.

const EVENT_STATES = {
  waiting: ["waiting", "warn"],
  forwarded: ["forwarded", "good"],
  parked: ["parked", "bad"],
  discarded: ["discarded", "warn"],
  notForIt: ["not for it", null],
  unknown: ["not known", null],
};
const HISTORY_COLUMNS = ["Sequence", "State", "What changed", "Stored", "Forwarded", "Trace"];
const history = { aggregate: null, rows: [], before: null, reading: null };

/** Show the history of an aggregate that something on the page names. */
function openHistory(aggregate) {
  find("history-type").value = aggregate.path;
  find("history-id").value = aggregate.id;
  find("history-title").focus();
  find("history-title").scrollIntoView({ block: "start" });
  return showHistory(aggregate.path, aggregate.id);
}

async function showHistory(path, id) {
  Object.assign(history, { aggregate: { path, id }, rows: [], before: null });
  location.replace(`#history/${path}/${encodeURIComponent(id)}`);
  await readHistory();
}

/** Read the next page, and add it; an answer that comes after something else was asked for is not shown. */
async function readHistory() {
  const { path, id } = history.aggregate;
  const reading = (history.reading = Symbol("this reading"));
  write(find("history-problem"), "");
  try {
    const page = await call(`history/${path}/${encodeURIComponent(id)}?${query({ pageSize: PAGE, before: history.before })}`);
    if (history.reading !== reading) return;
    history.rows.push(...rowsOf(page));
    history.before = page.before;
    find("history-result").hidden = false;
    write(find("history-summary"), summaryOf(page, id));
    keep(find("history").tBodies[0], history.rows, (each) => each.key, () => row(HISTORY_COLUMNS, [0]), showPast);
    find("history-older").hidden = history.before === null;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.wantsKey) return askForKey(true);
    if (history.reading !== reading) return;
    find("history-result").hidden = history.rows.length === 0;
    write(find("history-problem"), error.message);
  }
}

/** The events of a page and the sequences that have expired, the newest first. */
function rowsOf(page) {
  const events = page.events.map((event) => ({ key: event.eventId, place: event.sequence ?? Infinity, event, relay: page.relay }));
  const gone = page.expired.map((expired) => ({ key: `expired-${expired.first}`, place: expired.last, expired }));
  return [...events, ...gone].sort((a, b) => (b.place === a.place ? 0 : b.place - a.place));
}

function summaryOf(page, id) {
  const parts = [id];
  parts.push(page.lastSequence === null ? "its own document is gone" : `${many(page.lastSequence, "event")} in all`);
  if (page.deleted) parts.push("deleted");
  parts.push(placeOf(page.relay), ...page.destinations.map((each) => `${each.name}: ${placeOf(each)}`));
  return parts.join(" · ");
}

function placeOf({ lease, position, asOf }) {
  return lease === null ? "no lease tells how far the relay is" : `lease ${lease} at ${position ?? "its beginning"}, ${when(asOf)}`;
}

/** Where an event is: for the service's own transport, then for each other destination, with its name. */
function statesOf({ state, destinations }) {
  const badgeOf = (name, of) => {
    const [text, mood] = EVENT_STATES[of] ?? [of, null];
    return badge(name ? `${name}: ${text}` : text, mood);
  };
  return make("span", {}, badgeOf("", state), ...destinations.flatMap((each) => [" ", badgeOf(each.name, each.state)]));
}

function showPast(tr, { event, expired, relay }) {
  if (expired) {
    write(cell(tr, 0), expired.first === expired.last ? expired.first : `${expired.first}–${expired.last}`);
    put(cell(tr, 1), badge("expired", null));
    write(cell(tr, 2), "not stored any more");
    tr.classList.add("faint");
    return;
  }
  write(cell(tr, 0), event.sequence ?? "none");
  put(cell(tr, 1), statesOf(event));
  const changed = event.changed.length ? `: ${event.changed.join(", ")}` : "";
  writeName(cell(tr, 2), event.action ?? "a document that is no valid event", changed);
  tr.children[2].title = `Event ${event.eventId}`;
  write(cell(tr, 3), when(event.storedAt));
  tr.children[3].title = event.expiresAt ? `Expires ${when(event.expiresAt)}` : "";
  write(cell(tr, 4), forwardedText(event, relay));
  cell(tr, 5).classList.add("mono");
  write(cell(tr, 5), event.traceId ?? "–");
  tr.children[5].title = event.correlationId ? `Correlation id ${event.correlationId}` : "";
}

/** The outbox keeps no time of sending: the lease tells only whether it has passed the event. */
function forwardedText(event, relay) {
  if (event.state === "forwarded") return `before ${when(relay.asOf)}`;
  if (event.state === "waiting") return relay.waitingSince ? `lease waits at ${when(relay.waitingSince)}` : "not yet";
  return "–";
}

find("history-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const path = find("history-type").value || aggregates[0]?.path;
  const id = find("history-id").value.trim();
  if (path && id) showHistory(path, id);
});
find("history-older").addEventListener("click", () => readHistory());

/** An address that ends in #history/path/id opens with that history. */
function openHash() {
  const [, path, encoded] = location.hash.match(/^#history\/([^/]+)\/(.+)$/) ?? [];
  if (!aggregates.some((each) => each.path === path)) return;
  let id;
  try {
    id = decodeURIComponent(encoded);
  } catch {
    return; // nobody's id: the address was cut or mistyped
  }
  if (history.aggregate?.path !== path || history.aggregate.id !== id) openHistory({ path, id });
}
