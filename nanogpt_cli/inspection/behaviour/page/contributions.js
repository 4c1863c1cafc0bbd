// Which parts speak for an answer.

const GROUPS = { "token embedding": "embeddings", "position embedding": "embeddings", head: "heads", "attention bias": "biases",
  "ln_f bias": "biases", mlp: "MLPs" };
const MOST_PARTS = 16;

drawers.contributions = (panel, view) => {
  const tell = ({ id, logit, probability, rank }) => [labelOf(id), `logit ${fixed(logit, 3)}, ${percent(probability)}, rank ${count(rank)}`];
  const reference = view.against ? "the other" : "the mean";
  const kinds = { relative: `the logit less ${reference}`, logit: "the logit" };
  const asked = [["after", labelOf(view.after), `token ${view.position}`], ["answer", ...tell(view.answer)]];
  asked.push(view.against ? ["against", ...tell(view.against)]
    : ["against", "the mean", `logit ${fixed(view.reference_logit, 3)} over ${plural(view.reference_ids, "id")}`]);
  const body = make("div");
  const redraw = (kind) => body.replaceChildren(
    ...layerGrid({ name: `shares of ${kinds[kind]}`, layers: byLayer(view, kind), rest: ["mlp"], unit: "logits" }),
    make("div", { class: "pair" }, strongest(view, kind), sumTable(view, reference)),
  );
  const [label] = choice("shares of", Object.entries(kinds), "relative", redraw);
  panel.append(tiles(asked), controls(label), body, note(capital(view.definition)));
  redraw("relative");
};

const capital = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

function byLayer(view, kind) {
  const layers = Array.from({ length: page.config.n_layer }, () => new Array(page.config.n_head + 1).fill(0));
  for (const part of view.parts) {
    if (part.kind === "head") layers[part.layer][part.head] = part[kind];
    if (part.kind === "mlp") layers[part.layer][page.config.n_head] = part[kind];
  }
  return layers;
}

function strongest(view, kind) {
  const parts = [...view.parts].sort((a, b) => Math.abs(b[kind]) - Math.abs(a[kind]));
  const most = Math.abs(parts[0][kind]) || 1;
  const rows = parts.slice(0, MOST_PARTS).map((part) => ({ cells: [part.part, signed(part[kind]), signedBar(part[kind] / most)] }));
  const rest = parts.slice(MOST_PARTS);
  if (rest.length) rows.push({ cells: [`and ${rest.length} more`, signed(rest.reduce((sum, part) => sum + part[kind], 0)), ""] });
  return make("div", {}, make("h3", { text: "the strongest" }), table("", [["part", "text"], ["share", null], ["", null]], rows));
}

function sumTable(view, reference) {
  const groups = {};
  for (const part of view.parts) {
    const sums = (groups[GROUPS[part.kind]] ??= [0, 0]);
    sums[0] += part.logit;
    sums[1] += part.relative;
  }
  const rows = Object.entries(groups).map(([name, sums]) => ({ cells: [name, ...sums.map((sum) => signed(sum))] }));
  const own = [view.answer.logit, view.answer.logit - view.reference_logit];
  rows.push({ cells: ["sum", signed(view.sum_logit), signed(view.sum_relative)] });
  rows.push({ cells: ["the model's", ...own.map((value) => signed(value))] });
  rows.push({ cells: ["left over", ...[view.error_logit, view.error_relative].map((value) => value.toExponential(1))] });
  return make("div", {}, make("h3", { text: "the sums" }), table("", [["part", "text"], ["logit", null], [`less ${reference}`, null]], rows));
}
