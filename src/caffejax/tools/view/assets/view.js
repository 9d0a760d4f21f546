// The state of the page: net, phase, open blocks, selection and search.

const MANY = 60; // number of boxes above which blocks are closed at first

class View {
  constructor(net) {
    this.surface = byId("surface");
    this.stage = byId("stage");
    this.camera = new Camera(this.surface, this.stage);
    this.search = new Search({
      layers: () => this.phase.layers,
      go: (number) => this.choose({ layer: number }, true),
      mark: (matches) => this.mark(matches),
    });
    this.open = new Map(); // ids of the open blocks by phase
    this.choice = null;
    this.take(net, null);
    listen(this);
  }

  // Shows a net. A new version of the same net keeps the open blocks, the selection and the position.
  take(net, before) {
    this.net = net;
    const complete = ["TRAIN", "TEST"].filter((name) => net.phases[name].builds && net.phases[name].layers.some((layer) => layer.shapes));
    const trained = complete.find((name) => net.phases[name].layers.some(({ family }) => family === "loss"));
    const chosen = before && this.choice?.layer !== undefined ? this.phase.layers[this.choice.layer].name : null;
    if (!before) this.phaseName = trained ?? complete.at(-1) ?? "TRAIN"; // a net without loss is for inference
    this.enter();
    const again = this.phase.layers.findIndex(({ name }) => name === chosen);
    this.choice = again >= 0 ? { layer: again } : null;
    document.title = `${shown(net.name || net.file)} – caffejax view`;
    byId("title").textContent = shown(net.name || "a net without name");
    byId("file").textContent = shown(net.file);
    this.draw();
    if (!before) this.camera.start();
    showPanel(this, this.choice);
    this.search.look();
    this.search.close();
  }

  // Prepares the current phase.
  enter() {
    this.phase = this.net.phases[this.phaseName];
    this.tree = treeOf(this.phase);
    this.problemsByName = new Map();
    for (const problem of this.problems) {
      if (problem.layer !== undefined) collect(this.problemsByName, problem.layer, () => []).push(problem);
    }
    if (!this.open.has(this.phaseName)) {
      const all = this.phase.boxes.length > MANY ? [] : [...blocksIn(this.tree)].map(({ id }) => id);
      this.open.set(this.phaseName, new Set(all));
    }
    for (const button of document.querySelectorAll("[data-phase]")) {
      const own = this.net.problems.filter(({ phases }) => phases.includes(button.dataset.phase)).length;
      button.setAttribute("aria-pressed", String(button.dataset.phase === this.phaseName));
      button.classList.toggle("wrong", own > 0);
    }
    const count = byId("count");
    count.hidden = !this.problems.length;
    count.textContent = counted(this.problems.length, "problem");
  }

  get name() {
    return this.net.name;
  }
  get file() {
    return this.net.file;
  }
  get notes() {
    return this.net.notes;
  }
  get texts() {
    return this.net.texts;
  }

  // The problems of the prototxt text and of the current phase.
  get problems() {
    return this.net.problems.filter(({ phases }) => !phases.length || phases.includes(this.phaseName));
  }

  problemsOf(number) {
    return this.problemsByName.get(this.phase.layers[number].name) ?? [];
  }

  layersOf(item) {
    return this.phase.boxes.slice(item.start, item.stop).flatMap(({ layers }) => layers);
  }

  isOpen(block) {
    return this.open.get(this.phaseName).has(block.id);
  }

  // Lays out and draws the phase again.
  draw() {
    const begun = performance.now();
    const size = (item) => sizeOf(item, this.phase, (number) => this.problemsOf(number));
    this.placed = placeAll(this.tree, this.phase.boxes, size, (block) => this.isOpen(block));
    const laid = performance.now();
    this.stage.replaceChildren(drawAll(this.placed, this));
    this.places = new Map(this.placed.nodes.map((node) => [node.item.id, node]));
    this.camera.drawn = this.placed;
    this.camera.show();
    this.boxOf = new Map(this.phase.boxes.flatMap(({ layers }, box) => layers.map((number) => [number, box])));
    this.elements = new Map();
    for (const element of this.stage.querySelectorAll("[data-item]")) this.elements.set(element.dataset.item, element);
    this.times = { layout: laid - begun, all: performance.now() - begun };
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn ?? 0) + 1);
    if (this.search.field.value.trim()) this.mark(new Set(this.search.matches));
    this.emphasise();
  }

  // Returns the node that shows a box: the box itself, or the outermost closed block around it.
  nodeOf(box) {
    const closed = blocksAround(this.tree, box).find((block) => !this.isOpen(block));
    return this.places.get(closed ? closed.id : `box ${box}`);
  }

  choose(choice, reveal = false) {
    this.choice = choice;
    if (choice?.layer !== undefined) {
      const box = this.boxOf.get(choice.layer);
      const closed = blocksAround(this.tree, box).filter((block) => !this.isOpen(block));
      closed.forEach(({ id }) => this.open.get(this.phaseName).add(id));
      if (closed.length) this.draw();
      if (reveal) this.camera.reveal(this.places.get(`box ${box}`));
    }
    this.emphasise();
    showPanel(this, choice);
  }

  // Highlights the selection and its edges.
  emphasise() {
    for (const element of this.stage.querySelectorAll(".chosen, .beside")) element.classList.remove("chosen", "beside");
    if (!this.choice) return;
    const { layer, block } = this.choice;
    if (layer !== undefined) this.stage.querySelector(`[data-layer="${layer}"]`)?.classList.add("chosen");
    const range = layer !== undefined ? { start: this.boxOf.get(layer), stop: this.boxOf.get(layer) + 1 } : block;
    const id = layer !== undefined ? `box ${range.start}` : block.id;
    this.elements.get(id)?.classList.add("chosen");
    const around = new Set([id, ...blocksAround(this.tree, range.start).map((outer) => outer.id)]);
    const read = new Set();
    for (let box = range.start; box < range.stop; box++) this.phase.boxes[box].sources.forEach((source) => read.add(source));
    for (const edge of this.stage.querySelectorAll(".edge")) {
      const { from, to, leaves } = edge.dataset;
      const out = from >= range.start && from < range.stop;
      if (out || (read.has(Number(from)) && around.has(to) !== Boolean(leaves))) edge.classList.add("beside");
    }
  }

  mark(matches) {
    this.stage.classList.toggle("searched", matches !== null);
    for (const element of this.stage.querySelectorAll("[data-layer]")) {
      element.classList.toggle("match", matches?.has(Number(element.dataset.layer)) ?? false);
    }
    for (const element of this.stage.querySelectorAll(".block")) {
      const { item } = this.places.get(element.dataset.item);
      element.classList.toggle("match", matches !== null && this.layersOf(item).some((number) => matches.has(number)));
    }
  }

  // Opens or closes a block. Its position on the screen stays the same.
  toggle(id) {
    const open = this.open.get(this.phaseName);
    const before = this.places.get(id);
    if (!open.delete(id)) open.add(id);
    this.draw();
    const after = this.places.get(id);
    const centre = (node) => node.x + node.width / 2;
    if (before && after) this.camera.pan((centre(before) - centre(after)) * this.camera.scale, (before.y - after.y) * this.camera.scale);
    showPanel(this, this.choice);
  }

  toggleAll(wanted) {
    const blocks = wanted ? [...blocksIn(this.tree)].map(({ id }) => id) : [];
    this.open.set(this.phaseName, new Set(blocks));
    if (this.choice?.layer !== undefined && !wanted) this.choice = null;
    this.draw();
    this.camera.start();
    showPanel(this, this.choice);
  }

  showPhase(name) {
    if (name === this.phaseName) return;
    const chosen = this.choice?.layer === undefined ? null : this.phase.layers[this.choice.layer].text;
    const before = this.placed.width;
    this.phaseName = name;
    this.choice = null;
    this.enter();
    this.draw();
    this.camera.pan(((before - this.placed.width) / 2) * this.camera.scale, 0); // the middle of the drawing stays at the same position
    const again = this.phase.layers.findIndex(({ text }) => text === chosen);
    this.choose(again >= 0 ? { layer: again } : null);
    this.search.look();
    this.search.close();
  }

  // Selects a layer that reads from the selected layer, or a layer from which it reads.
  step(down) {
    if (this.choice?.layer === undefined) return this.choose({ layer: 0 }, true);
    const here = this.choice.layer;
    const layers = this.phase.layers;
    const next = down ? layers.findIndex(({ sources }) => sources.includes(here)) : (layers[here].sources.find((s) => s !== null) ?? -1);
    if (next >= 0) this.choose({ layer: next }, true);
  }
}
