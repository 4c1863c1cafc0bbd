// What the model would say after each layer.

drawers.lens = (panel, view) => {
  const measures = {
    probability: ["probability of the likeliest token", (row, n) => row.probabilities[n], ["0 %", "100 %"]],
    entropy: ["entropy", (row, n) => 1 - row.entropies_bits[n] / Math.log2(view.vocab_size), ["as uncertain as can be", "certain"]],
  };
  if (view.tracked !== null) {
    measures.tracked = [`probability of ${labelOf(view.tracked)}`, (row, n) => row.tracked_probabilities[n], ["0 %", "100 %"]];
  }
  let chosen = "probability";
  const legend = make("div");
  const cell = (r, n) => {
    const row = view.rows[r];
    const follows = tokens[n + 1] ? `the text goes on with ${tokens[n + 1].label}` : "the text ends here";
    return {
      text: labelOf(row.ids[n]),
      small: percent(row.probabilities[n]),
      colour: () => rising(measures[chosen][1](row, n)),
      lines: [
        labelOf(row.ids[n]),
        `${percent(row.probabilities[n])} after ${row.label}, behind token ${tokens[n].place} ${tokens[n].label}`,
        `entropy ${fixed(row.entropies_bits[n])} bits; ${follows}`,
        view.tracked === null ? "" : `${labelOf(view.tracked)}: rank ${count(row.tracked_ranks[n])}, ${percent(row.tracked_probabilities[n])}`,
      ].filter(Boolean),
    };
  };
  const { whole, headings } = grid({
    name: "likeliest next token by layer and position", corner: "", style: "tokens",
    rows: view.rows.map((row) => row.label), columns: tokens.map((token) => ({ name: token.label, sub: token.place })),
    cell, onChoose: (n) => choose(tokens[n].place),
  });
  const mark = (place) => headings.forEach((heading, n) => heading.classList.toggle("chosen", tokens[n].place === place));
  onChosen(mark);
  mark(chosenPlace);
  const redraw = () => {
    legend.replaceChildren(scale(rising, 0, measures[chosen][2]));
    repaint();
  };
  const names = Object.entries(measures).map(([key, [name]]) => [key, name]);
  const [label] = choice("colour:", names, chosen, (value) => { chosen = value; redraw(); });
  panel.append(
    lead("Every place in the residual stream goes through the final norm, with its own mean and variance, and the head. "
      + "A column is a token of the text and predicts what follows it; the last row is the model's own prediction."),
    controls(label), whole, legend,
  );
  redraw();
};
