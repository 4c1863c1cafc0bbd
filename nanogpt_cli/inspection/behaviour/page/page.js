// The head of the page, its tabs, light and dark.

const { config } = page;
document.getElementById("checkpoint").textContent = page.checkpoint;
document.title = `${page.checkpoint}: nanogpt inspect`;

const facts = [
  `${plural(config.n_layer, "layer")} × ${plural(config.n_head, "head")} × ${count(config.n_embd)} wide`,
  `block_size ${count(config.block_size)}`,
  `vocab_size ${count(config.vocab_size)}`,
  `${config.bias ? "bias" : "no bias"}, ${config.activation}`,
  `tokenizer ${page.tokenizer}`,
  `nanogpt ${page.nanogpt}`,
].filter(Boolean);
document.getElementById("facts").append(...facts.map((text) => make("li", { text })));

const cutPrompt = page.prompt_characters > page.prompt_shown ? `, the first ${count(page.prompt_shown)} of them` : "";
document.getElementById("prompt-heading").textContent = page.prompt_characters
  ? `prompt: ${plural(page.prompt_tokens, "token")}, ${plural(page.prompt_characters, "character")}${cutPrompt}`
  : `prompt: ${plural(page.prompt_tokens, "token")}, no text`;
const prompt = document.getElementById("prompt");
prompt.textContent = page.prompt;
prompt.hidden = !page.prompt_characters;

const leftOut = document.getElementById("left-out");
leftOut.append(...page.left_out.map((text) => make("li", { text })));
leftOut.hidden = !page.left_out.length;

const theme = document.getElementById("theme");
const nameTheme = () => {
  theme.textContent = isDark() ? "light" : "dark";
  theme.setAttribute("aria-label", `switch to ${theme.textContent} colours`);
};
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  repaint();
});
painting(nameTheme);

const panels = document.getElementById("panels");
const tabs = page.titles.map(([name, help]) => {
  const tab = make("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, "aria-selected": "false", text: name });
  const heading = make("h2", { text: capital(help).slice(0, -1) });
  const panel = make("section", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}`, hidden: "" }, heading);
  tab.addEventListener("click", () => open(name));
  document.getElementById("tabs").append(tab);
  panels.append(panel);
  return { name, tab, panel, drawn: false };
});

function draw(each) {
  if (each.drawn) return;
  each.drawn = true;
  const view = views[each.name];
  if (view.missing) each.panel.append(lead(`Not here: ${view.missing}.`));
  else drawers[each.name](each.panel, view);
}

function open(name) {
  hideTip();
  for (const each of tabs) {
    const isChosen = each.name === name;
    each.tab.setAttribute("aria-selected", String(isChosen));
    each.panel.hidden = !isChosen;
    if (isChosen) draw(each);
  }
  enterTab(tabs.find((each) => each.name === name).tab);
  try {
    history.replaceState(null, "", `#${name}`);
  } catch {
    // In a frame of another page there is no address to keep.
  }
}

const enterTab = rove(document.getElementById("tabs"), [tabs.map((each) => each.tab)], (tab) => tab.click());
addEventListener("beforeprint", () => tabs.forEach(draw));
const wanted = location.hash.slice(1);
open(tabs.some((each) => each.name === wanted) ? wanted : page.start);
