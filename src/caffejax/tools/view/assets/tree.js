// The tree of a phase: boxes, and blocks that contain boxes or other blocks. Each item covers a range of boxes.

// Returns the root. Items have kind ("root", "block" or "box"), id, start, stop and parent. Roots and blocks have children.
function treeOf(phase) {
  const used = new Map();
  const root = { kind: "root", id: "", label: "", start: 0, stop: phase.boxes.length, parent: null };
  root.children = childrenOf(root, phase.blocks);
  return root;

  function childrenOf(parent, blocks) {
    const found = [];
    let at = parent.start;
    for (const block of blocks) {
      while (at < block.start) found.push(boxAt(at++, parent));
      found.push(blockOf(block, parent));
      at = block.stop;
    }
    while (at < parent.stop) found.push(boxAt(at++, parent));
    return found;
  }

  function blockOf({ start, stop, label, parts }, parent) {
    const times = used.get(label) ?? 0; // labels may repeat; an id stays the same when the text is edited elsewhere
    used.set(label, times + 1);
    const block = { kind: "block", id: `${label}#${times}`, label, start, stop, parent, repeats: parts.length };
    block.children = childrenOf(block, parts);
    return block;
  }

  function boxAt(number, parent) {
    return { kind: "box", id: `box ${number}`, start: number, stop: number + 1, parent };
  }
}

function* blocksIn(item) {
  for (const child of item.children ?? []) {
    if (child.kind === "block") yield child;
    yield* blocksIn(child);
  }
}

// Returns the index of the child that contains a box.
function childWith(item, box) {
  let [low, high] = [0, item.children.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (item.children[middle].start <= box) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Returns the blocks around a box, the outermost first.
function blocksAround(root, box) {
  const found = [];
  for (let item = root; item.kind !== "box"; item = item.children[childWith(item, box)]) {
    if (item.kind === "block") found.push(item);
  }
  return found;
}

// Returns for each box the indices of the boxes that read from it.
function readersOf(boxes) {
  const readers = boxes.map(() => []);
  boxes.forEach((box, number) => box.sources.forEach((source) => readers[source].push(number)));
  return readers;
}
