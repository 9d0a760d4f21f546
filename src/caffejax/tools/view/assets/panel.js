// The panel at the side, which describes the net or the selected layer or block.

// Shows the selected layer or block, or the net if nothing is selected.
function showPanel(net, choice) {
  const panel = byId("about");
  const content =
    choice === null ? aboutNet(net) : choice.layer === undefined ? aboutBlock(net, choice.block) : aboutLayer(net, choice.layer);
  panel.replaceChildren(...content.filter((part) => part !== null));
  panel.scrollTop = 0;
}

function aboutLayer(net, number) {
  const layer = net.phase.layers[number];
  const readers = (blob) =>
    net.phase.layers.flatMap((other, i) => (other.bottoms.some((b, j) => b === blob && other.sources[j] === number) ? [i] : []));
  const blob = (name, ...links) => html("span", {}, html("strong", {}, shown(name)), html("span", { class: "muted" }, ...links));
  const bottoms = layer.bottoms.map((name, i) => {
    const source = layer.sources[i];
    if (source === null) return [blob(name, html("span", { class: "missing" }, "no layer computes it")), ""];
    return [blob(name, "from ", linkTo(net, source)), shapeOf(net.phase.layers[source], name)];
  });
  const tops = layer.tops.map((name, i) => {
    const links = readers(name).flatMap((reader, n) => [n ? ", " : "to ", linkTo(net, reader)]);
    return [blob(name, ...(links.length ? links : ["an output"])), layer.shapes ? shapeInWords(layer.shapes[i] ?? []) : ""];
  });
  const unknown = layer.shapes ? null : html("p", { class: "muted" }, "The shapes are unknown, because the net cannot be built up to this layer.");
  return [
    heading(layer.name, html("span", { class: `chip family-${layer.family}` }, shown(layer.type)), crossed(layer.detail)),
    complaints(net.problemsOf(number), null),
    unknown,
    section("Bottoms", bottoms),
    section("Tops", tops),
    layer.shapes ? numbersOf(layer) : null,
    html("h3", {}, "Prototxt"),
    html("pre", { class: "prototxt" }, shownText(net.texts[layer.text])),
  ];
}

function shapeOf(layer, blob) {
  const index = layer.tops.lastIndexOf(blob);
  return layer.shapes?.[index] ? shapeInWords(layer.shapes[index]) : "";
}

// Returns text of several lines with invisible characters made visible.
function shownText(text) {
  return text.split("\n").map(shown).join("\n");
}

function numbersOf(layer) {
  const space = (sizes) => (sizes ? sizes.join(" × ") : null);
  const params = layer.paramShapes.map(shapeInWords).join(", ");
  return table("numbers", [
    ["Parameters", `${layer.parameters.toLocaleString("en")}${params ? ` (${params})` : ""}`],
    ["Multiply-adds", layer.multiplyAdds === null ? "not known: it runs on the host" : exact(layer.multiplyAdds)],
    ["Activations", bytesInWords(layer.activationBytes)],
    ["Receptive field", space(layer.receptiveField) ?? "–"],
    ["Stride", space(layer.stride) ?? "–"],
  ]);
}

function exact(count) {
  return count < 10000 ? count.toLocaleString("en") : `${count.toLocaleString("en")} (${inWords(count)})`;
}

function aboutBlock(net, block) {
  const layers = net.layersOf(block);
  const wrong = layers.flatMap((number) => net.problemsOf(number));
  const kind = block.repeats ? `${block.repeats} equal blocks` : "a block";
  return [
    heading(block.label, html("span", { class: "chip family-unbuilt" }, kind), ""),
    html("p", {}, html("button", { type: "button", "data-open": block.id }, net.isOpen(block) ? "Close it" : "Open it")),
    complaints([...new Set(wrong)], net),
    totals(net, layers),
    html("h3", {}, counted(layers.length, "layer")),
    html("ul", { class: "layers" }, layers.slice(0, 300).map((number) => html("li", {}, linkTo(net, number, true)))),
    layers.length > 300 ? html("p", { class: "muted" }, `and ${layers.length - 300} more`) : null,
  ];
}

function aboutNet(net) {
  const layers = net.phase.layers.map((_, number) => number);
  const notes = [...new Set([...net.notes, ...net.phase.notes])];
  return [
    heading(net.name || "a net without name", null, net.file),
    complaints(net.problems, net),
    totals(net, layers),
    byFamily(net, layers),
    notes.length ? html("h3", {}, "Notes") : null,
    notes.length ? html("ul", { class: "notes" }, notes.map((note) => html("li", {}, shown(note)))) : null,
    html("h3", {}, "Keys"),
    table("keys", [
      [html("kbd", {}, "/"), "search names, types and blobs"],
      [html("kbd", {}, "f"), "see the whole net"],
      [html("kbd", {}, "c"), "close all blocks"],
      [html("kbd", {}, "e"), "open all blocks"],
      [html("kbd", {}, "↑ ↓"), "go to where a layer reads, or is read"],
      [html("kbd", {}, "Esc"), "let go of what is chosen"],
    ]),
  ];
}

function heading(name, chip, detail) {
  return html("header", {}, html("h2", {}, shown(name) || "(no name)"), html("p", { class: "kind" }, chip ?? "", " ", shown(detail ?? "")));
}

// Returns a list of problems. `net` is null for the problems of one layer; otherwise they link to their layers.
function complaints(problems, net) {
  if (!problems.length) return null;
  const items = problems.map((problem) => {
    const number = net?.phase.layers.findIndex((layer) => layer.name === problem.layer) ?? -1;
    const place = problem.line ? `line ${problem.line}: ` : "";
    const layer = problem.layer === undefined || !net ? null : number >= 0 ? linkTo(net, number) : shown(problem.layer);
    return html("li", {}, layer, layer ? ": " : "", place, shown(problem.message));
  });
  return html("ul", { class: "problems", role: "alert" }, items);
}

function totals(net, numbers) {
  const layers = numbers.map((number) => net.phase.layers[number]);
  if (!layers.some((layer) => layer.shapes)) return null;
  const sum = (field) => layers.reduce((total, layer) => total + (layer[field] ?? 0), 0);
  const hosts = layers.filter((layer) => layer.multiplyAdds === null).length;
  const built = layers.filter((layer) => layer.shapes).length;
  const batch = batchOf(net.phase.layers);
  return table("numbers", [
    ["Layers", numbers.length.toLocaleString("en") + (built < numbers.length ? `; the counts are for ${built} of them` : "")],
    ...(batch ? [["Batch", batch === 1 ? "1" : `${batch.toLocaleString("en")}; the counts are for the full batch`]] : []),
    ["Parameters", exact(sum("parameters"))],
    ["Multiply-adds", exact(sum("multiplyAdds")) + (hosts ? `, without ${hosts} on the host` : "")],
    ["Activations", bytesInWords(sum("activationBytes"))],
  ]);
}

// Returns the batch size of the net's inputs, or null if they differ.
function batchOf(layers) {
  const shapes = layers.filter(({ bottoms, shapes }) => !bottoms.length && shapes).flatMap(({ shapes }) => shapes);
  const counts = new Set(shapes.map(([count]) => count));
  return counts.size === 1 ? ([...counts][0] ?? null) : null;
}

// Returns a legend of the families, with their shares of the multiply-adds and parameters.
function byFamily(net, numbers) {
  const families = new Map();
  for (const number of numbers) {
    const layer = net.phase.layers[number];
    const seen = collect(families, layer.family, () => ({ count: 0, multiplyAdds: 0, parameters: 0 }));
    seen.count += 1;
    seen.multiplyAdds += layer.multiplyAdds ?? 0;
    seen.parameters += layer.parameters ?? 0;
  }
  const all = [...families.values()];
  const most = (field) => all.reduce((sum, seen) => sum + seen[field], 0) || 1;
  const [products, parameters] = [most("multiplyAdds"), most("parameters")];
  const bar = (share) => {
    const element = html("span", { class: "bar", title: `${(100 * share).toFixed(1)} %` }, html("span"));
    element.firstChild.style.width = `${100 * share}%`;
    return element;
  };
  const rows = [...families].map(([family, seen]) =>
    html(
      "tr",
      { class: `family-${family}` },
      html("th", { scope: "row" }, html("span", { class: "dot" }), html("button", { type: "button", class: "link plain", "data-find": family }, family)),
      html("td", {}, String(seen.count)),
      html("td", {}, bar(seen.multiplyAdds / products)),
      html("td", {}, bar(seen.parameters / parameters)),
    ),
  );
  const titles = ["family", "layers", "multiply-adds", "parameters"].map((title) => html("th", { scope: "col" }, title));
  return html("table", { class: "families" }, html("thead", {}, html("tr", {}, titles)), html("tbody", {}, rows));
}

function section(title, rows) {
  return rows.length ? html("section", {}, html("h3", {}, title), table("blobs", rows)) : null;
}

function table(klass, rows) {
  return html("table", { class: klass }, html("tbody", {}, rows.map((row) => html("tr", {}, row.map((cell) => html("td", {}, cell))))));
}

function linkTo(net, number, withType = false) {
  const layer = net.phase.layers[number];
  const link = html("button", { type: "button", class: "link", "data-go": number }, shown(layer.name || "(no name)"));
  return withType ? html("span", {}, html("span", { class: `dot family-${layer.family}` }), link, html("span", { class: "muted" }, ` ${shown(layer.type)}`)) : link;
}
