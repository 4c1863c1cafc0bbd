// Coloured cells by row and column: the lens, shares and losses by layer and head.

/**
 * columns: [{ name, sub, gap }], gap for an empty column before it
 * cell(row, column): { text, small, colour, lines } or null; `colour` is asked for again at a change of theme
 */
function grid({ name, corner, rows, columns, cell, style = "", onChoose = () => {} }) {
  const head = make("tr", {}, make("td", { text: corner }));
  const headings = columns.map((column) => {
    if (column.gap) head.append(make("td", { class: "gap" }));
    const shown = make("th", { scope: "col" }, bidi(column.name));
    if (column.sub !== undefined) shown.append(String(column.sub));
    head.append(shown);
    return shown;
  });
  const cells = [];
  const body = rows.map((label, r) => {
    const line = make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader", text: label }));
    cells.push(columns.map((column, c) => {
      if (column.gap) line.append(make("td", { class: "gap" }));
      const shown = fill(cell(r, c), () => onChoose(c));
      line.append(shown);
      return shown;
    }));
    return line;
  });
  const whole = make("table", { class: `grid ${style}`, role: "grid", "aria-label": name },
    make("thead", {}, head), make("tbody", {}, ...body));
  rove(whole, cells);
  return { whole: bare(whole), headings, cells };
}

function fill(content, onClick) {
  if (content === null) return make("td", { role: "gridcell" });
  const { text, small, colour, lines } = content;
  const shown = make("td", { role: "gridcell", "aria-label": lines.join(", "), on: { click: onClick } },
    make("span", { text }), small ? make("small", { text: small }) : null);
  painting(() => paint(shown, colour()));
  explain(shown, () => lines);
  return shown;
}

/** Signed numbers by layer: heads first, then the rest, each with a scale of its own. */
function layerGrid({ name, layers, rest, unit }) {
  const heads = layers.map((row) => row.length - rest.length)[0];
  const largest = (from, to) => Math.max(0, ...layers.flatMap((row) => row.slice(from, to).map((v) => Math.abs(v ?? 0))));
  const sizes = [largest(0, heads), largest(heads)];
  const columns = layers[0].map((_, c) =>
    (c < heads ? { name: String(c) } : { name: rest[c - heads], gap: c === heads }));
  const cell = (r, c) => {
    const value = layers[r][c];
    const part = c < heads ? `head ${c}` : rest[c - heads];
    const size = sizes[c < heads ? 0 : 1] || 1;
    return {
      text: value === null ? "" : signed(value, size >= 10 ? 2 : 3),
      colour: () => (value === null ? null : parting(value / size)),
      lines: [`block ${r} ${part}`, `${signed(value, 4)} ${unit}`],
    };
  };
  const { whole } = grid({ name, corner: "layer", rows: layers.map((_, r) => String(r)), columns, cell });
  const [most, others] = sizes.map((size) => size.toPrecision(3));
  const legend = scale(parting, -1, [`−${most}`, `+${most}`], `heads; ${rest.join(", ")}: up to ${others}`);
  return [whole, legend];
}
