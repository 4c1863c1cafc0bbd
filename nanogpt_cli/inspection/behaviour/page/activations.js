// How large the numbers inside are.

drawers.activations = (panel, view) => {
  const norm = (norms) => (norms === null ? "" : norms.mean.toPrecision(4));
  const parts = ["residual", "attention", "mlp"];
  const most = Math.max(...view.rows.flatMap((row) => parts.map((name) => row[name]?.mean ?? 0))) || 1;
  const columns = [["after", "text"], ["residual", null], ["", "short"], ["largest", null], ["at", "token"], ["attention adds", null], ["", "short"],
    ["mlp adds", null], ["", "short"], ["dead", null], ["saturated", null], ["outlier dimensions", "text"]];
  const barOf = (norms) => (norms === null ? "" : bar(norms.mean / most));
  const rows = view.rows.map((row) => ({
    cells: [row.label, norm(row.residual), barOf(row.residual), row.residual.max.toPrecision(4), bidi(`${row.residual.at} ${labelOf(row.residual.id)}`),
      norm(row.attention), barOf(row.attention), norm(row.mlp), barOf(row.mlp),
      row.units === null ? "" : percent(row.units.dead_share), row.units === null ? "" : percent(row.units.saturated_share), outliers(row)],
  }));
  const embeddings = [["wte", view.wte], ["wpe", view.wpe]].map(([name, norms]) => ({
    cells: [name, norm(norms), norms.max.toPrecision(4), bidi(`${norms.at} ${labelOf(norms.id)}`)],
  }));
  panel.append(
    table("norms of the residual stream, and of what each block adds to it", columns, rows),
    make("h3", { text: "the embeddings" }),
    table("", [["rows of", "text"], ["mean norm", null], ["largest", null], ["at", "token"]], embeddings),
    note(`Means over ${plural(view.tokens, "position")}. Dead: GELU units whose input is below -${view.flat} at every position, so that they pass `
      + `nothing; saturated: above ${view.flat} at every position, so that they pass it as it is. Outliers: of ${count(view.n_embd)} dimensions of `
      + `the residual stream, those whose root mean square is at least ${view.outlier_times_median} times the median dimension's.`),
  );
};

const MOST_OUTLIERS = 4;

function outliers(row) {
  const shown = row.outliers.slice(0, MOST_OUTLIERS).map(({ dimension, times_median: times }) =>
    `${dimension} (${times === null ? "the rest is 0" : `× ${times.toPrecision(3)}`})`);
  const rest = row.outliers.length - MOST_OUTLIERS;
  return shown.join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}
