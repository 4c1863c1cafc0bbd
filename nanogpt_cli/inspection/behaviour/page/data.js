// What the page is about, and how its numbers are written.

const page = JSON.parse(document.getElementById("data").textContent);
const views = page.views;

/** One function a view: it fills a panel, once. */
const drawers = {};

const labelOf = (id) => page.labels[id];

function percent(share) {
  if (share === null) return "none";
  const value = 100 * share;
  return `${value === 0 || value >= 99.95 ? value.toFixed(1) : value.toPrecision(3)} %`;
}

const fixed = (value, digits = 2) => (value === null ? "none" : value.toFixed(digits));

const count = (value) => (value === null ? "none" : value.toLocaleString("en-US"));

const signed = (value, digits = 3) => (value === null ? "not finite" : (value < 0 ? "" : "+") + value.toFixed(digits));

const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** The tokens on the page, each with its place in the whole text. */
const tokens = listTokens(page.tokens);

function listTokens({ first, ids, pieces }) {
  return ids.map((id, n) => ({ place: first + n, id, label: labelOf(id), piece: pieces[n] }));
}

const named = (token) => `token ${token.place}: ${token.label}`;
