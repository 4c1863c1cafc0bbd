// Two palettes a theme: one rises in lightness alone, one goes from blue over nothing to orange.
// Both read the same with any colour vision, and the first in print, too.

const SEQUENTIAL = {
  light: ["#fdfdfc", "#d8e6f3", "#9cc4e4", "#559ccf", "#1f6bb0", "#0a3f7d", "#05224b"],
  dark: ["#1b2027", "#1c4560", "#176884", "#258f90", "#5ab58c", "#a8d78c", "#f4f0a8"],
};
const DIVERGING = {
  light: ["#0f4a8a", "#4f8fcb", "#b5d2ea", "#fdfdfc", "#f6cfa6", "#dd8a3c", "#96480a"],
  dark: ["#9fd0ff", "#4b8fce", "#28486a", "#1b2027", "#6b4322", "#c97b33", "#ffcf94"],
};

const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function mix(stops, share) {
  const along = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const below = Math.min(Math.floor(along), stops.length - 2);
  const [from, to] = [channels(stops[below]), channels(stops[below + 1])];
  return from.map((value, n) => Math.round(value + (to[n] - value) * (along - below)));
}

/** The colour of a share, 0 to 1. */
const rising = (share) => mix(SEQUENTIAL[isDark() ? "dark" : "light"], share);

/** The colour of a share, -1 to 1. */
const parting = (share) => mix(DIVERGING[isDark() ? "dark" : "light"], (share + 1) / 2);

const css = (colour) => `rgb(${colour.join(" ")})`;

/** Black or white, whichever can be read on a colour. */
function inkOn(colour) {
  const [r, g, b] = colour.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#0c1116" : "#ffffff";
}

const repaints = [];

/** Do something now, and whenever light becomes dark or dark light. */
function painting(act) {
  repaints.push(act);
  act();
}

const repaint = () => repaints.forEach((act) => act());
system.addEventListener("change", repaint);

/** Give an element a ground, and an ink that can be read on it; null is no ground. */
function paint(element, colour) {
  element.style.backgroundColor = colour ? css(colour) : "";
  element.style.color = colour ? inkOn(colour) : "";
}

/** A legend: `texts` stand at the left, and at the right, of the colours from `least` to 1. */
function scale(colour, least, [left, right], more = "") {
  const strip = make("i", { "aria-hidden": "true" });
  for (let n = 0; n <= 24; n += 1) strip.append(make("b"));
  painting(() => [...strip.children].forEach((each, n) => paint(each, colour(least + ((1 - least) * n) / 24))));
  const parts = [make("span", { text: left }), strip, make("span", { text: right })];
  return make("div", { class: "scale" }, ...parts, more ? make("span", { text: more }) : null);
}
