// Reactions to clicks and keys.

function listen(view) {
  const toggled = (target) => target.closest("[data-toggle]")?.dataset.toggle;
  view.surface.addEventListener("click", ({ target }) => {
    if (view.camera.moved) return;
    if (toggled(target)) return view.toggle(toggled(target));
    const layer = target.closest("[data-layer]");
    const item = target.closest("[data-item]");
    if (layer) view.choose({ layer: Number(layer.dataset.layer) });
    else view.choose(item && view.places.has(item.dataset.item) ? { block: view.places.get(item.dataset.item).item } : null);
  });
  view.surface.addEventListener("dblclick", ({ target }) => {
    const block = target.closest(".block, .frame");
    if (block && !toggled(target)) view.toggle(block.dataset.item);
  });
  byId("about").addEventListener("click", ({ target }) => {
    const { go, open, find } = target.closest("[data-go], [data-open], [data-find]")?.dataset ?? {};
    if (find !== undefined) view.search.lookFor(find);
    if (go !== undefined) view.choose({ layer: Number(go) }, true);
    if (open !== undefined) view.toggle(open);
  });
  const buttons = {
    fit: () => view.camera.fit(),
    closer: () => view.camera.zoom(1.3),
    farther: () => view.camera.zoom(1 / 1.3),
    "close-all": () => view.toggleAll(false),
    "open-all": () => view.toggleAll(true),
    count: () => view.choose(null),
  };
  for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);
  for (const button of document.querySelectorAll("[data-phase]")) {
    button.addEventListener("click", () => view.showPhase(button.dataset.phase));
  }
  document.addEventListener("keydown", (event) => press(view, event));
}

function press(view, event) {
  if (event.target.closest("input") || event.ctrlKey || event.metaKey || event.altKey) return;
  const acts = {
    "/": () => view.search.field.focus(),
    f: () => view.camera.fit(),
    c: () => view.toggleAll(false),
    e: () => view.toggleAll(true),
    "+": () => view.camera.zoom(1.3),
    "-": () => view.camera.zoom(1 / 1.3),
    ArrowDown: () => view.step(true),
    ArrowUp: () => view.step(false),
    Enter: () => view.choice?.block && view.toggle(view.choice.block.id),
    Escape: () => {
      view.search.clear();
      view.choose(null);
    },
  };
  if (acts[event.key] && !(event.key === "Enter" && event.target.closest("button"))) {
    event.preventDefault();
    acts[event.key]();
  }
}
