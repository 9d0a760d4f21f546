// The drawing: boxes, blocks and edges as SVG.

// Returns an SVG group with the drawing. `net` has the attributes phase, problemsOf and layersOf.
function drawAll(placed, net) {
  const edges = svg("g", { class: "edges" }, placed.edges.map((edge) => drawEdge(edge, net)));
  const frames = placed.nodes.filter(({ open }) => open).map((node) => drawFrame(node));
  const nodes = placed.nodes.filter(({ open }) => !open).map((node) => drawNode(node, net));
  return svg("g", {}, svg("g", { class: "frames" }, frames), edges, svg("g", { class: "nodes" }, nodes));
}

function drawNode(node, net) {
  return node.item.kind === "block" ? drawBlock(node, net) : drawBox(node, net);
}

function drawEdge({ source, target, leaves, ends, points }, net) {
  const path = svg("path", {
    class: ends ? "edge ends" : "edge",
    d: smooth(points),
    "data-from": source,
    "data-to": target.id,
    "data-leaves": leaves,
  });
  const last = net.phase.layers[net.phase.boxes[source].layers.at(-1)];
  const blob = shown(last.tops.join(", "));
  path.append(svg("title", {}, last.shapes ? `${blob}: ${last.shapes.map(shapeInWords).join(", ")}` : blob));
  return path;
}

// Returns the path of a smooth line through points, which begins and ends vertically.
function smooth(points) {
  const at = ({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`;
  const middle = (a, b) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
  if (points.length < 3) return `M${points.map(at).join("L")}`;
  let path = `M${at(points[0])}L${at(middle(points[0], points[1]))}`;
  for (let i = 1; i < points.length - 1; i++) path += `Q${at(points[i])} ${at(middle(points[i], points[i + 1]))}`;
  return `${path}L${at(points.at(-1))}`;
}

function drawBox({ item, x, y, width, height }, net) {
  const box = net.phase.boxes[item.start];
  const group = svg("g", { class: "box", transform: `translate(${x},${y})`, "data-item": item.id });
  group.append(svg("rect", { class: "card", width, height, rx: 8 }));
  let top = 0;
  box.layers.forEach((number, i) => {
    const problems = net.problemsOf(number);
    const tall = (i ? ROW : HEAD) + (problems.length ? COMPLAINT : 0);
    group.append(drawLayer(net.phase.layers[number], number, problems, { top, width, tall, first: i === 0, last: i === box.layers.length - 1 }));
    top += tall;
  });
  return group;
}

function drawLayer(layer, number, problems, { top, width, tall, first, last }) {
  const group = svg("g", {
    class: `layer family-${layer.family}${problems.length ? " wrong" : ""}`,
    transform: `translate(0,${top})`,
    "data-layer": number,
  });
  group.append(svg("path", { class: "tint", d: rounded(width, tall, first ? 8 : 0, last ? 8 : 0) }));
  group.append(svg("rect", { class: "swatch", x: 5, y: 5, width: 3.5, height: tall - 10, rx: 1.75 }));
  const kind = `${layer.type}${layer.detail ? ` ${crossed(layer.detail)}` : ""}`;
  const text = (klass, x, y, words, anchor) => svg("text", { class: klass, x, y, "text-anchor": anchor }, words);
  if (first) {
    const shape = layer.shapes?.length ? layer.shapes[0].slice(1).join("×") || String(layer.shapes[0]) : "";
    const shapeText = fitted(shape, Math.max(110, width - 30 - textWidth(kind)), FONTS.detail);
    group.append(text("name", 14, 18, fitted(layer.name, width - 26, FONTS.name)));
    group.append(text("detail", 14, 34, fitted(kind, width - 30 - textWidth(shapeText), FONTS.detail)));
    if (shape) group.append(text("shape", width - 10, 34, shapeText, "end"));
  } else {
    const type = fitted(kind, width * 0.5, FONTS.detail);
    group.append(svg("line", { class: "rule", x1: 5, x2: width, y1: 0, y2: 0 }));
    group.append(text("name minor", 14, 16, fitted(layer.name, width - 34 - textWidth(type), FONTS.detail)));
    group.append(text("detail", width - 10, 16, type, "end"));
  }
  if (problems.length) {
    const more = problems.length > 1 ? ` (+${problems.length - 1})` : "";
    group.append(text("complaint", 14, tall - 7, `⚠ ${fitted(problems[0].message, width - 46 - textWidth(more), FONTS.complaint, 0)}${more}`));
  }
  group.append(svg("title", {}, [`${shown(layer.name)} (${shown(layer.type)})`, ...problems.map((p) => shown(p.message))].join("\n")));
  return group;
}

function textWidth(text) {
  ruler.font = FONTS.detail;
  return ruler.measureText(text).width;
}

// Returns the path of a rectangle with the given radii of the upper and lower corners.
function rounded(width, height, upper, lower) {
  return (
    `M${upper},0H${width - upper}a${upper},${upper} 0 0 1 ${upper},${upper}V${height - lower}` +
    `a${lower},${lower} 0 0 1 ${-lower},${lower}H${lower}a${lower},${lower} 0 0 1 ${-lower},${-lower}` +
    `V${upper}a${upper},${upper} 0 0 1 ${upper},${-upper}z`
  );
}

function drawBlock({ item, x, y, width, height }, net) {
  const layers = net.layersOf(item);
  const wrong = layers.some((number) => net.problemsOf(number).length);
  const group = svg("g", { class: `block${wrong ? " wrong" : ""}`, transform: `translate(${x},${y})`, "data-item": item.id });
  for (const shift of item.repeats ? [8, 4] : []) {
    group.append(svg("rect", { class: "card behind", x: shift, y: shift, width: width - 8, height: height - 8, rx: 8 }));
  }
  const [w, h] = item.repeats ? [width - 8, height - 8] : [width, height];
  group.append(svg("rect", { class: "card", width: w, height: h, rx: 8 }));
  const text = (klass, left, down, words, anchor) =>
    svg("text", { class: klass, x: left, y: down, "text-anchor": anchor }, words);
  const times = item.repeats ? `× ${item.repeats}` : "";
  group.append(text("name", 34, h / 2 - 6, `${wrong ? "⚠ " : ""}${fitted(item.label, w - (times ? 84 : 48) - (wrong ? 16 : 0), FONTS.name)}`));
  group.append(text("times", w - 12, h / 2 - 6, times, "end"));
  const parameters = layers.reduce((sum, number) => sum + (net.phase.layers[number].parameters ?? 0), 0);
  const size = parameters ? ` · ${inWords(parameters)} parameters` : "";
  group.append(text("detail", 34, h / 2 + 10, `${counted(layers.length, "layer")}${size}`));
  group.append(drawStripe(layers, net, w, h), drawToggle(item, 17, h / 2 - 2, "+"));
  group.append(svg("title", {}, `${shown(item.label)}: double-click to open`));
  return group;
}

// Draws a line in the colours of a block's layer families. Each colour is as long as the family's share of the layers.
function drawStripe(layers, net, width, height) {
  const counts = new Map();
  for (const number of layers) {
    const { family } = net.phase.layers[number];
    counts.set(family, (counts.get(family) ?? 0) + 1);
  }
  let left = 12;
  const group = svg("g", { class: "stripe" });
  for (const [family, count] of counts) {
    const share = (count / layers.length) * (width - 24);
    group.append(svg("rect", { class: `swatch family-${family}`, x: left, y: height - 8, width: share, height: 3 }));
    left += share;
  }
  return group;
}

function drawFrame({ item, x, y, width, height }) {
  const words = item.repeats ? `${shown(item.label)}  × ${item.repeats}` : shown(item.label);
  return svg(
    "g",
    { class: `frame${item.repeats ? " run" : ""}`, transform: `translate(${x},${y})`, "data-item": item.id },
    svg("rect", { width, height, rx: 12 }),
    drawToggle(item, 16, 15, "−"),
    svg("text", { class: "label", x: 30, y: 19 }, fitted(words, width - 44, FONTS.name)),
    svg("title", {}, `${words}: double-click to close`),
  );
}

function drawToggle(item, x, y, sign) {
  return svg(
    "g",
    { class: "toggle", "data-toggle": item.id, transform: `translate(${x},${y})`, role: "button" },
    svg("circle", { r: 9 }),
    svg("text", { y: 4.5, "text-anchor": "middle" }, sign),
  );
}
