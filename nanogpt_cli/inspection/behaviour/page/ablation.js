// What the loss is without each head and each layer.

const MOST_LESIONS = 16;

drawers.ablation = (panel, view) => {
  const rest = ["attention", "mlp", "both"];
  const layers = view.layers.map((layer) => [...layer.heads, ...rest.map((name) => layer[name])]);
  const parts = view.layers.flatMap((layer) => [
    ...layer.heads.map((change, head) => [`block ${layer.layer} head ${head}`, change]),
    ...["attention", "mlp"].map((name) => [`block ${layer.layer} ${name}`, layer[name]]),
  ]).filter(([, change]) => change !== null);
  parts.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const most = Math.abs(parts[0]?.[1] ?? 0) || 1;
  const rows = parts.slice(0, MOST_LESIONS).map(([name, change]) => ({
    cells: [name, signed(change, 4), signedBar(change / most), fixed(view.loss_nats + change, 4)],
  }));
  panel.append(
    lead(`The loss is ${fixed(view.loss_nats, 4)} nats a token over ${plural(view.predicted_tokens, "predicted token")}. `
      + "Each cell is how it changes when a part is silent."),
    ...layerGrid({ name: "change of the loss by part", layers, rest, unit: "nats a token" }),
    make("h3", { text: "the largest changes" }),
    table("", [["without", "text"], ["change", null], ["", null], ["loss", null]], rows),
    note(capital(view.definition)),
  );
};
