// Layout of a tree of boxes and blocks. An open block is laid out separately, and is then a single node in its parent.
// Therefore opening a block moves other nodes only a little, equal blocks are laid out once, and the time for a large net
// is the sum of the times of its blocks.

const FRAME = { pad: 14, header: 30 };
const ROOM = { above: 12, below: -10 }; // padding of frames with ports, which already have space between ports and nodes
const PORT = 2; // the size of a port, where an edge enters or leaves a block
const PULL = 50; // the weight of the edges that attract ports to a block's border
const laidOut = new Map();
const KEPT = 400;

// Returns the positions: {width, height, nodes: [{item, x, y, width, height, open}], edges: [{source, target, leaves,
// ends, points}]}. x and y are the upper left corner; sources are boxes, and targets are items. An edge ends at a node, or
// continues in an open block. An edge that leaves goes from a box to the border of the block that is its target.
function placeAll(tree, boxes, sizeOf, isOpen) {
  const readers = readersOf(boxes);
  const placed = place(tree, { boxes, readers, sizeOf, isOpen });
  const nodes = [];
  const edges = [];
  flatten(placed, 0, 0, nodes, edges);
  return { width: placed.width, height: placed.height, nodes, edges };
}

function place(level, given) {
  const inner = level.children.map((c) => (c.kind === "block" && given.isOpen(c) ? place(c, given) : null));
  const sizes = level.children.map((child, i) =>
    inner[i]
      ? { width: inner[i].width + 2 * FRAME.pad, height: inner[i].height + inner[i].above + inner[i].below }
      : given.sizeOf(child),
  );
  const { links, entries, exits } = linksOf(level, given);
  const nodes = sizes.map((size, i) => ({ id: `c${i}`, ...size }));
  const edges = links.map(({ from, to }) => ({ from: `c${from}`, to: `c${to}` }));
  addPorts(nodes, edges, entries, exits);
  const found = remembered(nodes, edges);
  const centre = new Map(nodes.map(({ id }, i) => [id, found.nodes[i]]));
  const children = level.children.map((item, i) => {
    const { x, y } = centre.get(`c${i}`);
    const { width, height } = sizes[i];
    return { item, x: x - width / 2, y: y - height / 2, width, height, inner: inner[i] };
  });
  const above = entries.length ? ROOM.above : FRAME.header;
  const below = exits.length ? ROOM.below : FRAME.pad;
  return { ...found, above, below, children, routes: routesOf(), entry: portsAt("i", entries), exit: portsAt("o", exits) };

  function portsAt(mark, ports) {
    return new Map(ports.map(({ box }, i) => [box, centre.get(`${mark}${i}`).x]));
  }

  // Returns one route for each box that is read; several routes may follow the same edge.
  function routesOf() {
    const routes = [];
    const route = (points, source, from, to) => {
      const path = points.map(({ x, y }) => ({ x, y }));
      if (from?.inner) path[0] = { x: from.x + FRAME.pad + from.inner.exit.get(source), y: from.y + from.height };
      if (to?.inner) path[path.length - 1] = { x: to.x + FRAME.pad + to.inner.entry.get(source), y: to.y };
      if (!from) path[0] = { x: path[0].x, y: -above };
      if (!to) path[path.length - 1] = { x: path[path.length - 1].x, y: found.height + below };
      routes.push({ source, target: to?.item ?? level, leaves: !to, ends: Boolean(to && !to.inner), points: path });
    };
    let at = 0;
    for (const { from, to, sources } of links) {
      const { points } = found.edges[at++];
      for (const source of sources) route(points, source, children[from], children[to]);
    }
    for (const { box, children: reading } of entries) {
      for (const child of reading) route(found.edges[at++].points, box, null, children[child]);
    }
    for (const { box, children: read } of exits) {
      for (const child of read) route(found.edges[at++].points, box, children[child], null);
    }
    return routes;
  }
}

// Returns the connections between the children of an item, from outside to the children, and from them to outside.
function linksOf(level, { boxes, readers }) {
  const links = new Map();
  const entries = new Map();
  const exits = new Map();
  level.children.forEach((child, to) => {
    for (let box = child.start; box < child.stop; box++) {
      for (const source of boxes[box].sources) {
        if (source >= child.start && source < child.stop) continue;
        if (source < level.start || source >= level.stop) {
          collect(entries, source, () => ({ box: source, children: new Set() })).children.add(to);
        } else {
          const from = childWith(level, source);
          collect(links, `${from} ${to}`, () => ({ from, to, sources: new Set() })).sources.add(source);
        }
      }
      if (readers[box].some((reader) => reader < level.start || reader >= level.stop)) {
        exits.set(box, { box, children: new Set([to]) });
      }
    }
  });
  return { links: [...links.values()], entries: [...entries.values()], exits: [...exits.values()] };
}

function collect(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}

function addPorts(nodes, edges, entries, exits) {
  const port = (id) => nodes.push({ id, width: PORT, height: PORT });
  entries.forEach(({ children }, i) => {
    port(`i${i}`);
    for (const child of children) edges.push({ from: `i${i}`, to: `c${child}` });
  });
  exits.forEach(({ children }, i) => {
    port(`o${i}`);
    for (const child of children) edges.push({ from: `c${child}`, to: `o${i}` });
  });
  if (entries.length > 1) {
    port("top");
    entries.forEach((_, i) => edges.push({ from: "top", to: `i${i}`, weight: PULL }));
  }
  if (exits.length > 1) {
    port("bottom");
    exits.forEach((_, i) => edges.push({ from: `o${i}`, to: "bottom", weight: PULL }));
  }
}

function remembered(nodes, edges) {
  const key = JSON.stringify([nodes, edges]);
  if (!laidOut.has(key)) {
    if (laidOut.size >= KEPT) laidOut.clear();
    laidOut.set(key, layOut(nodes, edges));
  }
  return laidOut.get(key);
}

function flatten(placed, left, top, nodes, edges) {
  for (const { points, ...route } of placed.routes) {
    edges.push({ ...route, points: points.map(({ x, y }) => ({ x: x + left, y: y + top })) });
  }
  for (const { item, x, y, width, height, inner } of placed.children) {
    nodes.push({ item, x: x + left, y: y + top, width, height, open: inner !== null });
    if (inner) flatten(inner, left + x + FRAME.pad, top + y + inner.above, nodes, edges);
  }
}
