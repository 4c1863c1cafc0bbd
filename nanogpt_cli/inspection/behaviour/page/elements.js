// Elements, the tip that follows pointer and focus, and arrow keys. Text is only ever textContent.

function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (key === "text") element.textContent = value;
    else if (key === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const lead = (text) => make("p", { class: "lead", text });
const note = (text) => make("p", { class: "note", text });

const tip = document.getElementById("tip");
const live = document.getElementById("live");
const explained = new WeakMap();
let again = null; // shows the tip of what was reached by keyboard, beside which it stays while the page moves

/** Let an element be explained, in lines, to whoever points at it or comes to it by keyboard. */
function explain(element, lines) {
  explained.set(element, lines);
}

function showTip(box, lines) {
  tip.replaceChildren(...lines.filter(Boolean).map((text) => make("p", { text })));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(Math.max(6, box.left + box.width / 2 - width / 2), innerWidth - width - 6);
  const above = box.top - height - 8;
  tip.style.left = `${Math.max(6, left)}px`;
  tip.style.top = `${above > 4 ? above : Math.min(box.bottom + 8, innerHeight - height - 4)}px`;
}

function hideTip() {
  again = null;
  tip.hidden = true;
}

let pointer = "";

/** Whether the pointer went somewhere: what scrolls under a pointer that rests is not pointed at. */
function isMoved(event) {
  const before = pointer;
  pointer = `${event.screenX} ${event.screenY}`;
  return pointer !== before;
}

function follow(event) {
  if (event.type === "pointerover" && !isMoved(event) && again) return undefined;
  for (let at = event.target; at instanceof Element; at = at.parentElement) {
    if (explained.has(at)) {
      again = event.type === "focusin" ? () => tellOf(at) : null;
      return tellOf(at);
    }
  }
  return event.type === "focusin" ? undefined : hideTip();
}

const tellOf = (element) => showTip([...element.getClientRects()].pop() ?? element.getBoundingClientRect(), explained.get(element)());

document.addEventListener("pointermove", isMoved);
document.addEventListener("pointerover", follow);
document.addEventListener("focusin", follow);
document.addEventListener("focusout", hideTip);
document.addEventListener("scroll", () => (again ? again() : hideTip()), { capture: true, passive: true });
document.addEventListener("keydown", (event) => event.key === "Escape" && hideTip());

const STEPS = {
  ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0],
  Home: [0, -Infinity], End: [0, Infinity],
};

/** Return where a key leads in rows of so many columns, or null. */
function step(key, row, column, rows, columns) {
  if (!(key in STEPS)) return null;
  const clamp = (value, size) => Math.min(Math.max(value, 0), size - 1);
  return [clamp(row + STEPS[key][0], rows), clamp(column + STEPS[key][1], columns)];
}

/** Make rows of elements one stop of the Tab key, inside of which the arrow keys move. */
function rove(root, rows, onMove = () => {}) {
  const places = new Map();
  rows.forEach((row, r) => row.forEach((element, c) => places.set(element, [r, c])));
  let current = rows[0]?.[0];
  const enter = (element) => {
    current?.setAttribute("tabindex", "-1");
    current = element;
    current?.setAttribute("tabindex", "0");
  };
  for (const element of places.keys()) element.setAttribute("tabindex", "-1");
  enter(current);
  root.addEventListener("focusin", (event) => places.has(event.target) && enter(event.target));
  root.addEventListener("keydown", (event) => {
    const place = places.get(event.target);
    const next = place && step(event.key, ...place, rows.length, rows[place[0]].length);
    if (!next || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const element = rows[next[0]][next[1]];
    element.focus();
    onMove(element);
  });
  return enter;
}

function choice(name, options, chosen, onChange) {
  const select = make("select", { on: { change: () => onChange(select.value) } });
  for (const [value, text] of options) select.append(make("option", { value, text }));
  select.value = chosen;
  return [make("label", { text: name }, select), select];
}

const controls = (...labels) => make("div", { class: "controls" }, ...labels);

function tiles(entries) {
  const list = make("dl", { class: "tiles" });
  for (const [name, value, more] of entries) {
    const shown = make("dd", { text: value }, more ? make("small", { text: more }) : null);
    list.append(make("div", {}, make("dt", { text: name }), shown));
  }
  return list;
}

/** A table of text and numbers: columns are [name, class], cells are text or elements. */
function table(caption, columns, rows) {
  const cell = (kind, content, style) =>
    content instanceof Node ? make(kind, { class: style }, content) : make(kind, { class: style, text: content });
  const head = make("tr", {}, ...columns.map(([name, style]) => cell("th", name, style)));
  for (const th of head.children) th.setAttribute("scope", "col");
  const body = rows.map(({ cells, style }) =>
    make("tr", { class: style }, ...cells.map((content, n) => cell("td", content, columns[n][1]))));
  const whole = make("table", { class: "rows" }, caption ? make("caption", { text: caption }) : null,
    make("thead", {}, head), make("tbody", {}, ...body));
  return wide(whole, caption || "table");
}

/** What may be wider than the screen, reachable by keyboard where it is. */
function wide(content, name) {
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": name }, content);
}

const bare = (content) => make("div", { class: "wide" }, content);

const bidi = (text) => make("bdi", { text });

function bar(share) {
  const inner = make("b");
  inner.style.left = "0";
  inner.style.width = `${100 * share}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, inner);
}

/** A bar to the right for more than 0, to the left for less. */
function signedBar(share) {
  const inner = make("b", { class: share < 0 ? "minus" : "plus" });
  inner.style.left = `${share < 0 ? 50 * (1 + share) : 50}%`;
  inner.style.width = `${50 * Math.abs(share)}%`;
  return make("span", { class: "bar two", "aria-hidden": "true" }, inner);
}
