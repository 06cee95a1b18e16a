// What changes something needs consent, runs one step after another, can be stopped, and shows each answer.

const TRIES = 3;
const ANSWERS_SHOWN = 200;

/**
 * Ask for consent. Resolves to `{reason}`, or to null when it is not given. `what` lists what it is done to; `danger`: it
 * cannot be undone, and needs a reason.
 */
function ask({ title, text, what, danger }) {
  const [dialog, go, field, problem] = [find("ask"), find("ask-go"), find("ask-reason"), find("ask-problem")];
  write(find("ask-title"), title);
  write(find("ask-text"), text);
  const shown = what.slice(0, 50).map((line) => make("li", {}, line));
  if (what.length > 50) shown.push(make("li", { class: "faint" }, `and ${count(what.length - 50)} more`));
  find("ask-what").replaceChildren(...shown);
  find("ask-reason-box").hidden = !danger;
  field.value = problem.textContent = "";
  go.classList.toggle("danger", danger);
  write(go, title);
  dialog.showModal();
  (danger ? field : find("ask-title")).focus();

  return new Promise((resolve) => {
    const end = new AbortController();
    const listen = (target, event, listener) => target.addEventListener(event, listener, { signal: end.signal });
    const finish = (result) => {
      end.abort();
      dialog.close();
      resolve(result);
    };
    listen(find("ask-cancel"), "click", () => finish(null));
    listen(dialog, "cancel", (event) => (event.preventDefault(), finish(null)));
    listen(find("ask-form"), "submit", (event) => {
      event.preventDefault();
      const reason = field.value.trim();
      if (!danger || reason) return finish({ reason });
      write(problem, "Give a reason.");
      field.focus();
    });
  });
}

let queue = Promise.resolve();

/**
 * Run steps, one after another, behind all work that was begun before. A step is `{label, run(stop, reason), once}`; `run`
 * resolves to the text to show, or throws; `once`: it is not tried again, whatever the answer is. `done` is called with each
 * step that succeeded.
 */
function work(title, steps, reason, done) {
  const stop = new AbortController();
  const progress = make("progress", { max: steps.length, value: 0, "aria-label": title });
  const tally = make("span", { class: "faint nowrap" }, `0 of ${count(steps.length)}`);
  const button = make("button", { type: "button", class: "small", on: { click: () => stop.abort() } }, "Stop");
  const answers = make("ul", { class: "answers", tabindex: 0, role: "list", "aria-label": `Answers: ${title}` });
  const entry = make("li", {}, make("div", { class: "line" }, make("strong", {}, title), progress, tally, button), answers);
  find("work-list").prepend(entry);
  find("work").hidden = false;
  find("work-title").focus();
  showWhetherUnderWay();

  const run = async () => {
    let [succeeded, refused, lost] = [0, 0, 0];
    for (const [index, step] of steps.entries()) {
      if (stop.signal.aborted) break;
      try {
        const text = await (step.once ? step.run(stop.signal, reason) : patiently(() => step.run(stop.signal, reason), stop.signal));
        succeeded += 1;
        done(step);
        answer(answers, "good", "done", `${step.label}: ${text}`);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        if (error.status) refused += 1;
        else lost += 1; // it may have been done
        answer(answers, "bad", error.status || "no answer", `${step.label}: ${error.message}`);
        if (error.status === 401) stop.abort();
      }
      progress.value = index + 1;
      write(tally, `${count(index + 1)} of ${count(steps.length)}`);
    }
    button.remove();
    progress.remove();
    const left = steps.length - succeeded - refused - lost;
    const summary = [`${count(succeeded)} done`, refused && `${count(refused)} refused`, lost && `${count(lost)} without an answer`, left && `${count(left)} not begun`];
    write(tally, summary.filter(Boolean).join(", "));
    say(`${title}: ${tally.textContent}`);
  };
  const ended = queue.then(run).finally(() => {
    showWhetherUnderWay();
    lookAgain();
  });
  queue = ended.catch(() => {}); // a bug in one piece of work is reported by the browser, and stops no other
  return ended;
}

const isUnderWay = () => find("work-list").querySelector("progress") !== null;

function showWhetherUnderWay() {
  find("work-close").disabled = isUnderWay();
}

find("work-close").addEventListener("click", () => {
  find("work-list").replaceChildren();
  find("work").hidden = true;
});

// Leaving the page stops the work, and so does forgetting the key.
const leaving = { asks: true };
addEventListener("beforeunload", (event) => {
  if (leaving.asks && isUnderWay()) event.preventDefault();
});

/** Try again what the service says will pass, when it says. */
async function patiently(step, stop) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await step();
    } catch (error) {
      if (!(error instanceof Refused && error.passes) || attempt === TRIES || stop.aborted) throw error;
      await wait(Math.min(30, error.retryAfter || 2), stop);
    }
  }
}

function answer(list, name, word, text) {
  list.append(make("li", {}, badge(String(word), name), make("span", {}, text)));
  while (list.children.length > ANSWERS_SHOWN) {
    // Those that went well leave first: what was refused is what somebody has to look at.
    (list.querySelector('li:has([data-mood="good"])') ?? list.firstElementChild).remove();
  }
  list.scrollTop = list.scrollHeight;
}
