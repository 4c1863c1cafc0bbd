// Where heads look: the weights, a map of one head, small ones of all.

/** Weights by layer, head, row and column; the head may be null for the mean over its layer's. */
function unpackMaps(view, layers, heads) {
  const text = atob(view.maps);
  const bytes = Uint8Array.from({ length: text.length }, (_, n) => text.charCodeAt(n));
  const all = view.itemsize === 2 ? new Uint16Array(bytes.buffer) : bytes;
  const T = view.tokens;
  const triangle = (T * (T + 1)) / 2;
  const one = (layer, head, row, column) =>
    (all[(layer * heads + head) * triangle + (row * (row + 1)) / 2 + column] / view.steps) ** 2;
  return {
    T, layers, heads,
    weight(layer, head, row, column) {
      if (column > row) return 0;
      if (head !== null) return one(layer, head, row, column);
      let sum = 0;
      for (let each = 0; each < heads; each += 1) sum += one(layer, each, row, column);
      return sum / heads;
    },
  };
}

/** Small weights are told apart, too: colour goes with the root. */
const shade = (weight) => rising(Math.sqrt(weight));

const THUMB = 64;

/** Draw a head's map in at most THUMB by THUMB dots, each the largest of its weights. */
function drawThumb(canvas, maps, layer, head) {
  const pool = Math.ceil(maps.T / THUMB);
  const size = Math.ceil(maps.T / pool);
  canvas.width = canvas.height = size;
  const most = new Float32Array(size * size);
  for (let row = 0; row < maps.T; row += 1) {
    for (let column = 0; column <= row; column += 1) {
      const at = Math.floor(row / pool) * size + Math.floor(column / pool);
      most[at] = Math.max(most[at], maps.weight(layer, head, row, column));
    }
  }
  const context = canvas.getContext("2d");
  const image = context.createImageData(size, size);
  most.forEach((weight, at) => image.data.set([...shade(weight), 255], 4 * at));
  context.putImageData(image, 0, 0);
}

const LONGEST_MARGIN = 104;
const [SMALLEST, LARGEST] = [8, 11]; // of the labels' letters

/** One head's map on a canvas, with a cell that pointer and arrow keys move. */
class BigMap {
  constructor(list, lines) {
    this.list = list;
    this.lines = lines;
    this.cell = null;
    this.canvas = make("canvas", { class: "map", tabindex: "0", role: "img" });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("focus", () => this.move(this.cell ?? [list.length - 1, list.length - 1]));
    this.canvas.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("click", () => this.cell && choose(this.list[this.cell[0]].place));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
  }

  show(weight, name) {
    this.weight = weight;
    this.canvas.setAttribute("aria-label", `${name}: rows look at columns; the arrow keys move from weight to weight`);
    this.draw();
  }

  press(event) {
    const T = this.list.length;
    const next = step(event.key, ...(this.cell ?? [T - 1, T - 1]), T, T);
    if (event.key === "Enter" && this.cell) choose(this.list[this.cell[0]].place);
    if (!next || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const [row, column] = next;
    this.move(event.key === "ArrowRight" && column > row ? [row, row] : [Math.max(row, event.key === "ArrowUp" ? 0 : column), Math.min(column, row)]);
    live.textContent = this.lines(...this.cell).join(", ");
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.size);
    const row = Math.floor((event.clientY - box.top - this.top) / this.size);
    if (row < 0 || row >= this.list.length || column < 0 || column > row) this.leave();
    else this.move([row, column]);
  }

  move(cell) {
    this.cell = cell;
    this.draw();
    this.tell();
    again = document.activeElement === this.canvas ? () => this.tell() : null;
  }

  tell() {
    const box = this.canvas.getBoundingClientRect();
    const left = box.left + this.left + this.cell[1] * this.size;
    const top = box.top + this.top + this.cell[0] * this.size;
    showTip({ left, top, bottom: top + this.size, width: this.size }, this.lines(...this.cell));
  }

  leave() {
    if (document.activeElement === this.canvas) return;
    this.cell = null;
    this.draw();
    hideTip();
  }

  /** Measure the room there is, and draw all of it. */
  draw() {
    const room = this.canvas.parentElement?.clientWidth;
    if (!room || !this.weight) return;
    const context = this.canvas.getContext("2d");
    const T = this.list.length;
    const family = getComputedStyle(document.body).getPropertyValue("--mono");
    context.font = `${LARGEST}px ${family}`;
    const longest = Math.max(...this.list.map((token) => context.measureText(token.label).width));
    this.left = this.top = Math.ceil(Math.min(longest, LONGEST_MARGIN, room / 4)) + 8;
    this.size = Math.min((room - this.left - 1) / T, 30);
    const ratio = window.devicePixelRatio || 1;
    const side = [this.left + this.size * T + 1, this.top + this.size * T + 1];
    [this.canvas.width, this.canvas.height] = side.map((length) => Math.round(length * ratio));
    [this.canvas.style.width, this.canvas.style.height] = side.map((length) => `${length}px`);
    context.scale(ratio, ratio);
    this.drawWeights(context, T);
    this.drawLabels(context, T, family);
    this.drawMarks(context, T);
  }

  drawWeights(context, T) {
    const gap = this.size > 8 ? 1 : 0;
    for (let row = 0; row < T; row += 1) {
      for (let column = 0; column <= row; column += 1) {
        context.fillStyle = css(shade(this.weight(row, column)));
        const [x, y] = [this.left + column * this.size, this.top + row * this.size];
        context.fillRect(x, y, this.size - gap + (gap ? 0 : 0.5), this.size - gap + (gap ? 0 : 0.5));
      }
    }
  }

  drawLabels(context, T, family) {
    const ink = getComputedStyle(document.body).color;
    const size = Math.min(Math.max(Math.floor(this.size), SMALLEST), LARGEST);
    const every = Math.ceil(size / this.size);
    context.font = `${size}px ${family}`;
    context.textBaseline = "middle";
    context.fillStyle = ink;
    for (let n = 0; n < T; n += every) {
      const middle = n * this.size + this.size / 2;
      const label = this.cut(context, this.list[n].label);
      context.textAlign = "right";
      context.fillText(label, this.left - 5, this.top + middle);
      context.save();
      context.translate(this.left + middle, this.top - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(label, 0, 0);
      context.restore();
    }
  }

  cut(context, label) {
    let kept = label;
    while (kept.length > 1 && context.measureText(kept).width > this.left - 8) kept = `${kept.slice(0, -2)}…`;
    return kept;
  }

  /** Frame the cell that is pointed at, and the row of the token that is chosen. */
  drawMarks(context, T) {
    context.strokeStyle = getComputedStyle(document.body).getPropertyValue("color");
    const chosen = this.list.findIndex((token) => token.place === chosenPlace);
    context.lineWidth = 1.5;
    if (chosen >= 0) {
      context.strokeRect(this.left - 0.5, this.top + chosen * this.size - 0.5, this.size * (chosen + 1), this.size);
    }
    if (!this.cell || this.cell[0] >= T) return;
    context.lineWidth = 2;
    context.strokeRect(this.left + this.cell[1] * this.size, this.top + this.cell[0] * this.size, this.size, this.size);
  }
}
