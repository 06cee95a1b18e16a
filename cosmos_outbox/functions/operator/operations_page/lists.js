// What every list has in common, and the list of parked events: each action is one call of the service.

const idButton = (aggregate) =>
  make("button", { type: "button", class: "link mono", "aria-label": `Events of ${aggregate.type} ${aggregate.id}`, on: { click: () => openEvents(aggregate) } }, aggregate.id);

function showAggregate(element, item) {
  const aggregate = aggregateOf(item);
  if (element.textContent !== (aggregate?.id ?? "none")) element.replaceChildren(aggregate ? idButton(aggregate) : make("span", { class: "faint" }, "none"));
}

function showEvent(element, item) {
  writeName(element, item.action ?? "not known", item.sequence ? ` ·\u00a0${item.sequence}` : "");
  element.parentElement.title = `Event ${item.eventId ?? "without an id"}`;
}

const named = (item) => {
  const aggregate = aggregateOf(item);
  const event = item.sequence ? `event ${item.sequence}` : `event ${item.eventId ?? item.id}`;
  return aggregate ? `${event} of ${aggregate.type} ${aggregate.id}` : event;
};

const reasonColumn = {
  label: "Reason",
  show(element, item) {
    element.classList.add("reason");
    write(element, item.reason);
  },
};

const STATES = {
  inTheWay: ["in the way", "bad"],
  waiting: ["waits behind", "warn"],
  alone: ["of no aggregate", "bad"],
};

function stateColumn(words) {
  return { label: "State", show: (element, item) => put(element, badge(...(words[item.state] ?? [item.state, null]))) };
}

const ageColumn = (seconds) => ({ label: "Age", number: true, show: (element, item) => (element.classList.add("nowrap"), write(element, span(seconds(item)))) });
const attemptsColumn = { label: "Tries", number: true, show: (element, item) => write(element, item.attempts) };

/** Call for each of `items`; what succeeded leaves the selection. */
function act(title, items, list, { path, bodyOf = () => null, text = () => "done", once = () => false }) {
  const steps = items.map((item) => ({
    item,
    once: once(item),
    label: list.labelOf(item),
    run: async (stop) => text(await call(path(item), { method: "POST", body: bodyOf(item), stop })),
  }));
  return work(title, steps, (step) => list.drop([step.item.id]));
}

async function discard(items, list, { what, last, note = "" }) {
  const consent = await ask({
    title: `Discard ${many(items.length, what)}`,
    text: `What is discarded is given up for good.${note}`,
    what: items.map((item) => list.labelOf(item)),
    reason: true,
    verb: `Discard ${many(items.length, what)}`,
    danger: true,
    last: `${last(items.length)} This cannot be undone.`,
  });
  if (consent) act(`Discard ${many(items.length, what)}`, items, list, { path: (item) => `${list.path}/${item.id}/discard`, bodyOf: () => consent, text: () => "discarded" });
}

/** Send what is parked of each aggregate that the items name, once for each. */
async function replay(items, list, note = "") {
  const wanted = new Map();
  for (const item of items) {
    const aggregate = aggregateOf(item);
    const name = `${aggregate.path}/${aggregate.id}`;
    wanted.set(name, { aggregate, ids: [...(wanted.get(name)?.ids ?? []), item.id] });
  }
  const labels = [...wanted.values()].map(({ aggregate }) => `${aggregate.type} ${aggregate.id}`);
  const title = `Replay ${many(wanted.size, "aggregate")}`;
  const consent = await ask({
    title,
    text: `All parked events of each are sent, in their sequence. Remove the cause first: an event that is refused again stays parked.${note}`,
    what: labels,
    verb: title,
    last: `The parked events of ${many(wanted.size, "aggregate")} are sent.`,
  });
  if (!consent) return;
  const steps = [...wanted.values()].map(({ aggregate, ids }) => ({
    ids,
    label: `${aggregate.type} ${aggregate.id}`,
    run: (stop) => replayWhole(`${list.path}/${aggregate.path}/${encodeURIComponent(aggregate.id)}/replay`, stop),
  }));
  work(title, steps, (step) => list.drop(step.ids));
}

/** One call sends for some seconds: call until nothing remains. */
async function replayWhole(path, stop) {
  let sent = 0;
  for (;;) {
    const { replayed, remaining } = await call(path, { method: "POST", stop });
    sent += replayed;
    if (!remaining || stop.aborted) return `${many(sent, "event")} sent${remaining ? ", more remain" : ""}`;
  }
}

const parkedList = new List({
  box: find("parked-list"),
  path: "parked",
  name: "parked events",
  empty: "Nothing is parked.",
  labelOf: named,
  columns: [
    { label: "Aggregate", show: showAggregate },
    { label: "Event", show: showEvent },
    stateColumn(STATES),
    reasonColumn,
    ageColumn((item) => serviceClock.secondsSince(item.parkedAt)),
    attemptsColumn,
  ],
  actions: [
    { name: "Replay", on: (item) => aggregateOf(item) !== null, begin: replay },
    {
      name: "Discard",
      on: (item) => ["inTheWay", "alone"].includes(item.state),
      begin: (items, list, note) => discard(items, list, { what: "event", note, last: (number) => `${many(number, "event is", "events are")} given up; subscribers get a notice in the place of each.` }),
    },
  ],
});
