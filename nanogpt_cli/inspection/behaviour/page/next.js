// What the model expects after the text.

drawers.next = (panel, view) => {
  const most = view.rows[0].probability;
  const rows = view.rows.map((row) => ({
    style: row.id === view.tracked ? "tracked" : null,
    cells: [count(row.rank), bidi(labelOf(row.id)), String(row.id), fixed(row.logit, 3), percent(row.probability),
      bar(row.probability / most), percent(row.cumulative)],
  }));
  const columns = [["rank", null], ["token", "token"], ["id", null], ["logit", null], ["probability", null], ["", null],
    ["cumulative", null]];
  panel.append(
    table("", columns, rows),
    note(`After ${plural(view.prompt_tokens, "token")}. The whole distribution, over ${count(view.vocab_size)} ids, `
      + `has an entropy of ${fixed(view.entropy_bits)} bits.`),
  );
};
