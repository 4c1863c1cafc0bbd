// How surprising each token of the text was.

const MOST_BITS = 12;

drawers.surprisal = (panel, view) => {
  const list = listTokens(view);
  const measures = {
    bits: ["surprisal", (n) => view.bits[n], rising, 0, ["0", `${MOST_BITS} bits and more`]],
    entropy: ["entropy of the prediction", (n) => view.entropies_bits[n], rising, 0, ["0", `${MOST_BITS} bits and more`]],
    excess: ["surprisal less entropy", (n) => (view.bits[n] === null ? null : view.bits[n] - view.entropies_bits[n]), parting, -1,
      [`−${MOST_BITS} bits: expected`, `+${MOST_BITS} bits: not expected`]],
  };
  let chosen = "bits";
  const lines = (n) => [named(list[n]), ...(view.bits[n] === null
    ? ["not predicted: nothing is scored here"]
    : [`${fixed(view.bits[n])} bits (probability ${percent(2 ** -view.bits[n])})`,
      `rank ${count(view.ranks[n])}; ${fixed(view.entropies_bits[n])} bits were to be expected`])];
  const colour = (n) => {
    const [, value, palette] = measures[chosen];
    return value(n) === null ? null : palette(value(n) / MOST_BITS);
  };
  const text = strip({ name: "the text, coloured by surprisal", list, asText: true, colour, lines });
  const legend = make("div");
  const redraw = () => {
    const [, , palette, least, ends] = measures[chosen];
    legend.replaceChildren(scale(palette, least, ends));
    text.recolour();
  };
  const names = Object.entries(measures).map(([key, [name]]) => [key, name]);
  const [label] = choice("colour:", names, chosen, (value) => { chosen = value; redraw(); });
  panel.append(tiles(sums(view)), controls(label), text.root, legend, listed(view, list));
  redraw();
};

function sums(view) {
  const windows = `${plural(view.windows, "window")} of at most ${count(view.block_size)} tokens`;
  const perByte = view.bits_per_byte === null ? [] : [["bits per byte", fixed(view.bits_per_byte, 4), `over ${count(view.scored_bytes)} bytes`]];
  return [
    ["protocol", view.protocol, windows],
    ["predicted", `${count(view.scored_tokens)} tokens`, `of ${count(view.prompt_tokens)}`],
    ["loss", fixed(view.loss, 4), `nats a token; ${fixed(view.total_nats, 2)} in all`],
    ["perplexity", view.perplexity === null ? "beyond 1e308" : Number(view.perplexity.toPrecision(6)).toString(), "e to the loss"],
    ["bits a token", fixed(view.bits_per_token, 4), `${fixed(view.mean_entropy_bits, 4)} were to be expected`],
    ...perByte,
  ];
}

const MOST_ROWS = 100;

function listed(view, list) {
  const order = list.map((_, n) => n).filter((n) => view.bits[n] !== null);
  order.sort((a, b) => view.bits[b] - view.bits[a]);
  const rows = order.slice(0, MOST_ROWS).map((n) => ({
    cells: [count(list[n].place), bidi(list[n].label), String(list[n].id), fixed(view.bits[n]), bar(Math.min(view.bits[n] / 20, 1)),
      count(view.ranks[n]), fixed(view.entropies_bits[n])],
  }));
  const columns = [["token", null], ["", "token"], ["id", null], ["bits", null], ["", null], ["rank", null], ["entropy", null]];
  const title = order.length > MOST_ROWS ? `the ${MOST_ROWS} most surprising tokens here` : "the tokens, the most surprising first";
  return make("details", {}, make("summary", { text: title }), table("", columns, rows));
}
