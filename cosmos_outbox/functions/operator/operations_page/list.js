// A list shows one page at a time, however long it is; what is selected stays selected on every page.

const PAGE = 50;
const ALL_PAGE = 100;

/** A list of items of the service, with a selection and actions on it. */
class List {
  /**
   * `columns` are `{label, show(element, item), number}`; `actions` are `{name, on(item), begin(items, list, note)}`, where
   * `on` tells whether the action can be done to an item, and `note` is added to the question.
   */
  constructor({ box, path, name, empty, columns, labelOf, actions }) {
    Object.assign(this, { path, name, columns, labelOf, actions });
    this.items = [];
    this.selected = new Map();
    this.tokens = [null];
    this.next = null;
    this.collecting = null;
    this.build(box, empty);
  }

  build(box, empty) {
    this.told = make("span", { class: "count" });
    this.everything = make("button", { type: "button", class: "small", on: { click: () => this.selectEverything() } });
    this.nothing = make("button", { type: "button", class: "small", on: { click: () => this.clear() } }, "Select none");
    this.bulk = this.actions.map((action) =>
      make("button", { type: "button", class: "small", on: { click: () => this.begin(action) } }, `${action.name} selected …`),
    );
    this.page = make("input", { type: "checkbox", "aria-label": `Select all ${this.name} on this page`, on: { change: () => this.selectPage() } });
    const heads = this.columns.map((column) => make("th", { role: "columnheader", scope: "col", class: column.number ? "number" : null }, column.label));
    this.body = make("tbody", { role: "rowgroup" });
    this.table = make(
      "table",
      { role: "table", class: "stacking" },
      make("caption", { class: "hidden" }, this.name),
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, make("th", { role: "columnheader", scope: "col" }, make("span", { class: "hidden" }, "Select")), ...heads, make("th", { role: "columnheader", scope: "col" }, "Actions"))),
      this.body,
    );
    this.tools = make("div", { class: "tools" }, make("label", {}, this.page, "Page"), this.everything, this.nothing, this.told, ...this.bulk);
    this.empty = make("p", { class: "empty" }, empty);
    this.back = make("button", { type: "button", class: "small", on: { click: () => this.turn(-1) } }, "Previous page");
    this.forth = make("button", { type: "button", class: "small", on: { click: () => this.turn(1) } }, "Next page");
    this.where = make("span");
    this.pager = make("div", { class: "pager" }, this.back, this.where, this.forth);
    box.append(this.tools, this.table, this.empty, this.pager);
    this.show();
  }

  /** Look at the page again. Throws Refused. */
  async look() {
    const token = this.tokens[this.tokens.length - 1];
    const found = await call(`${this.path}?${query({ pageSize: PAGE, continuationToken: token })}`);
    if (token !== this.tokens[this.tokens.length - 1]) return; // the page was turned meanwhile
    this.items = found.items;
    this.next = found.continuationToken;
    if (!this.items.length && this.tokens.length > 1) this.tokens = [null];
    this.show();
  }

  async turn(step) {
    if (step > 0 && this.next) this.tokens.push(this.next);
    if (step < 0 && this.tokens.length > 1) this.tokens.pop();
    await guarded(() => this.look());
    this.body.parentElement.scrollIntoView({ block: "nearest" });
  }

  show() {
    keep(this.body, this.items, (item) => item.id, (item) => this.rowOf(item), (tr, item) => this.change(tr, item));
    const pages = this.tokens.length > 1 || this.next;
    this.empty.hidden = this.items.length > 0;
    this.tools.hidden = this.table.hidden = !this.items.length && !this.selected.size;
    this.pager.hidden = !pages;
    this.back.disabled = this.tokens.length < 2;
    this.forth.disabled = !this.next;
    write(this.where, `Page ${this.tokens.length}`);
    this.showSelection();
  }

  rowOf(item) {
    const box = make("input", { type: "checkbox", on: { change: () => this.select(item.id, box.checked) } });
    const tr = row(["", ...this.columns.map((column) => column.label), ""], this.columns.flatMap((column, index) => (column.number ? [index + 1] : [])));
    cell(tr, 0).append(box);
    const buttons = make("div", { class: "actions" });
    for (const action of this.actions) {
      const begin = () => action.begin([this.items.find((each) => each.id === item.id) ?? item], this);
      buttons.append(make("button", { type: "button", class: "small", on: { click: begin } }, `${action.name} …`));
    }
    cell(tr, this.columns.length + 1).append(buttons);
    return tr;
  }

  change(tr, item) {
    const [label, box] = [this.labelOf(item), tr.querySelector("input")];
    box.setAttribute("aria-label", `Select ${label}`);
    box.checked = this.selected.has(item.id);
    tr.classList.toggle("selected", box.checked);
    this.columns.forEach((column, index) => column.show(cell(tr, index + 1), item));
    [...tr.querySelectorAll(".actions button")].forEach((button, index) => {
      const action = this.actions[index];
      button.hidden = !action.on(item);
      button.setAttribute("aria-label", `${action.name} ${label}`);
    });
  }

  select(id, wanted) {
    const item = this.items.find((each) => each.id === id);
    if (wanted && item) this.selected.set(id, item);
    else this.selected.delete(id);
    this.show();
  }

  selectPage() {
    for (const item of this.items) {
      if (this.page.checked) this.selected.set(item.id, item);
      else this.selected.delete(item.id);
    }
    this.show();
  }

  clear() {
    this.selected.clear();
    this.show();
  }

  /** Read all pages and select what is on them; the button stops it. */
  async selectEverything() {
    if (this.collecting) return this.collecting.abort();
    this.collecting = new AbortController();
    const stop = this.collecting.signal;
    await guarded(async () => {
      let token = null;
      do {
        this.showSelection();
        const found = await patiently(() => call(`${this.path}?${query({ pageSize: ALL_PAGE, continuationToken: token })}`, { stop }), stop);
        for (const item of found.items) this.selected.set(item.id, item);
        token = found.continuationToken;
      } while (token && !stop.aborted);
    });
    this.collecting = null;
    this.show();
    say(`${many(this.selected.size, "row")} selected`);
  }

  /** What is gone need not stay selected. */
  drop(ids) {
    for (const id of ids) this.selected.delete(id);
    this.showSelection();
  }

  /** Begin an action on what is selected; what it cannot be done to is left out, and that is said. */
  begin(action) {
    const items = this.chosen(action);
    const left = this.selected.size - items.length;
    action.begin(items, this, left ? ` ${many(left, "selected row is", "selected rows are")} left out: it cannot be done there.` : "");
  }

  chosen(action) {
    return [...this.selected.values()].filter((item) => action.on(item));
  }

  showSelection() {
    const shown = this.items.filter((item) => this.selected.has(item.id)).length;
    this.page.checked = shown > 0 && shown === this.items.length;
    this.page.indeterminate = shown > 0 && shown < this.items.length;
    write(this.told, this.selected.size || this.collecting ? `${count(this.selected.size)} selected` : "");
    write(this.everything, this.collecting ? "Stop selecting" : "Select all pages");
    this.everything.hidden = !this.collecting && !this.next && this.tokens.length < 2;
    this.nothing.hidden = !this.selected.size;
    this.bulk.forEach((button, index) => (button.disabled = !this.selected.size || !this.chosen(this.actions[index]).length));
  }
}
