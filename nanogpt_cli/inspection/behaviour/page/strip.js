// The text, token by token, each of which can be pointed at, reached with the arrow keys, and chosen.

let chosenPlace = null;

/** Choose a token of the text by its place, in every view that has it. */
function choose(place) {
  chosenPlace = place;
  document.dispatchEvent(new CustomEvent("choose", { detail: place }));
}

/** Act on a token that is chosen, here or elsewhere. */
const onChosen = (act) => document.addEventListener("choose", (event) => act(event.detail));

/**
 * list: tokens as `listTokens` makes them
 * asText: whether they run on as the text they are, or stand apart with what is hidden spelled out
 * colour(n): a colour or null; lines(n): what there is to say
 */
function strip({ name, list, asText, colour, lines }) {
  const root = make("div", {
    class: asText ? "strip" : "strip labels", role: "listbox", "aria-label": name, "aria-orientation": "horizontal",
    dir: asText ? "auto" : null,
  });
  const spans = list.map((token, n) => {
    if (n && page.separator && asText) root.append(page.separator);
    const text = asText ? token.piece : token.label;
    const span = make("span", { role: "option", "aria-selected": "false", text });
    if (asText && text === "") span.className = "part";
    if (asText && text.trim() === "" && text.includes("\n")) span.textContent = text.replaceAll("\n", "⏎\n");
    span.addEventListener("click", () => choose(token.place));
    span.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(token.place);
    });
    explain(span, () => lines(n));
    root.append(span);
    return span;
  });
  rove(root, [spans]);
  const recolour = () => spans.forEach((span, n) => {
    paint(span, colour(n));
    span.setAttribute("aria-label", lines(n).join(", "));
  });
  painting(recolour);
  const mark = (place) => spans.forEach((span, n) => span.setAttribute("aria-selected", String(list[n].place === place)));
  onChosen(mark);
  mark(chosenPlace);
  return { root, recolour };
}
