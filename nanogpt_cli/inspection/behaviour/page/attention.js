// Where each head looks.

const ROLES = { previous_token: "previous token", first_token: "first token", induction: "induction", duplicate: "duplicate token" };

drawers.attention = (panel, view) => {
  const { n_layer: layers, n_head: heads } = page.config;
  const maps = unpackMaps(view, layers, heads);
  const list = tokens.slice(-view.tokens);
  const state = { layer: view.layer, head: view.head, backwards: false };
  const weight = (row, column) => maps.weight(state.layer, state.head, row, column);
  const title = () => `layer ${state.layer}, ${state.head === null ? "the mean over its heads" : `head ${state.head}`}`;

  const big = new BigMap(list, (row, column) => [
    `${list[row].label} → ${list[column].label}`,
    `token ${list[row].place} looks at token ${list[column].place}: ${percent(weight(row, column))}`,
    elsewhere(row),
  ]);
  function elsewhere(row) {
    if (!view.before) return "";
    let here = 0;
    for (let column = 0; column <= row; column += 1) here += weight(row, column);
    return `${percent(Math.max(0, 1 - here))} of its attention is on tokens that are not on this page`;
  }

  const at = () => Math.max(0, list.findIndex((token) => token.place === chosenPlace));
  const of = (n) => (state.backwards ? weight(n, at()) : weight(at(), n));
  const text = strip({
    name: "the text, coloured by attention", list, asText: false, colour: (n) => shade(of(n)),
    lines: (n) => [named(list[n]), state.backwards
      ? `it looks at token ${list[at()].place} ${list[at()].label}: ${percent(of(n))}`
      : `token ${list[at()].place} ${list[at()].label} looks at it: ${percent(of(n))}`],
  });

  const heading = make("h3");
  const facts = make("dl", { class: "facts" });
  const names = (size) => Array.from({ length: size }, (_, n) => [String(n), String(n)]);
  const [layerLabel, layerSelect] = choice("layer", names(layers), "0", (value) => go(Number(value), state.head));
  const [headLabel, headSelect] = choice("head", [...names(heads), ["mean", "mean of all"]], "0",
    (value) => go(state.layer, value === "mean" ? null : Number(value)));
  const small = overview(view, maps, (layer, head) => go(layer, head));

  function go(layer, head) {
    Object.assign(state, { layer, head });
    layerSelect.value = String(layer);
    headSelect.value = head === null ? "mean" : String(head);
    heading.textContent = title();
    big.show(weight, title());
    small.mark(layer, head);
    facts.replaceChildren(...(head === null ? [] : describe(view.heads[layer * heads + head])));
    text.recolour();
  }

  const frame = make("div", {}, big.canvas);
  const directions = [["looks", "where the chosen token looks"], ["seen", "which tokens look at it"]];
  const [directionLabel] = choice("show", directions, "looks", (value) => { state.backwards = value === "seen"; text.recolour(); });
  const left = make("div", {}, heading, controls(layerLabel, headLabel), frame,
    scale((share) => rising(share), 0, ["0 %", "100 %"], "25 % in the middle: colour goes with the root"), facts);
  const right = make("div", {}, make("h3", { text: `all ${layers * heads} heads` }), small.whole);
  panel.append(
    lead("A row is a token, and its weights over what precedes it, itself included, sum to 1. Choose a head from the small maps, a token by a click."),
    make("div", { class: "maps" }, left, right), make("h3", { text: "by token" }), controls(directionLabel), text.root,
    headTable(view), note(checked(view)),
  );
  onChosen(() => { big.draw(); text.recolour(); });
  painting(() => big.draw());
  new ResizeObserver(() => big.draw()).observe(frame);
  if (chosenPlace === null) choose(list[list.length - 1].place);
  go(state.layer, state.head);
};

/** Small maps of all heads, a row a layer: a picker for the arrow keys and the pointer. */
function overview(view, maps, onPick) {
  const whole = make("div", { class: "overview", role: "listbox", "aria-label": "all heads, a row a layer" });
  whole.style.gridTemplateColumns = `max-content repeat(${maps.heads}, minmax(1.6rem, 1fr))`;
  whole.style.maxWidth = `${1.5 + 5.5 * maps.heads}rem`;
  whole.append(make("b"), ...Array.from({ length: maps.heads }, (_, head) => make("b", { text: String(head) })));
  const rows = [];
  for (let layer = 0; layer < maps.layers; layer += 1) {
    whole.append(make("b", { class: "layer", text: String(layer) }));
    rows.push(Array.from({ length: maps.heads }, (_, head) => {
      const lines = [`layer ${layer}, head ${head}`, ...scores(view.heads[layer * maps.heads + head]).map(([name, text]) => `${name}: ${text}`)];
      const canvas = make("canvas", { "aria-hidden": "true" });
      const button = make("button", { type: "button", role: "option", "aria-selected": "false", "aria-label": lines.join(", "),
        on: { click: () => onPick(layer, head) } }, canvas);
      explain(button, () => lines);
      painting(() => drawThumb(canvas, maps, layer, head));
      whole.append(button);
      return button;
    }));
  }
  const enter = rove(whole, rows, (button) => button.click());
  const mark = (layer, head) => {
    rows.flat().forEach((button) => button.setAttribute("aria-selected", "false"));
    const button = rows[layer][head ?? 0];
    if (head !== null) button.setAttribute("aria-selected", "true");
    enter(button);
  };
  return { whole: bare(whole), mark };
}

function scores(head) {
  const found = Object.keys(ROLES).filter((name) => head[name] !== null).map((name) => [ROLES[name], percent(head[name])]);
  if (head.entropy_bits !== null) found.push(["entropy", `${fixed(head.entropy_bits)} bits`]);
  return found;
}

const describe = (head) => scores(head).map(([name, text]) => make("div", {}, make("dt", { text: name }), make("dd", { text })));

function headTable(view) {
  const columns = [["layer", null], ["head", null], ...Object.values(ROLES).map((name) => [name, null]), ["entropy", null], ["role", "text"]];
  const rows = view.heads.map((head) => ({
    cells: [String(head.layer), String(head.head), ...Object.keys(ROLES).map((name) => (head[name] === null ? "" : percent(head[name]))),
      head.entropy_bits === null ? "" : fixed(head.entropy_bits), ROLES[head.role] ?? ""],
  }));
  const { probe } = view;
  const told = probe.reason ? `Induction and duplicate token: not measured, ${probe.reason}.`
    : `Induction and duplicate token: on ${probe.period} random tokens, twice over (seed ${probe.seed}), from the second half to the token `
      + `after the same one, and to the same one itself. Loss there: ${fixed(probe.first_loss_nats, 3)} nats a token at first, `
      + `${fixed(probe.repeat_loss_nats, 3)} when it repeats.`;
  return make("details", {}, make("summary", { text: "what each head does" }), table("", columns, rows),
    note(`Previous and first token: mean attention to the token before and to the first, on the text; entropy: its mean in bits. ${told}`));
}

function checked(view) {
  return `The model's weights sum to 1 within ${view.max_row_error.toExponential(0)} a row, and the logits that they lead to equal its own within `
    + `${view.max_logit_difference.toExponential(0)}. On this page their roots are rounded to 1/${count(view.steps)}.`;
}
