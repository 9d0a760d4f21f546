// How large boxes and closed blocks are, and the fonts of what stands in them.

const WIDTH = 220;
const HEAD = 42; // of a box's first layer, with its name and its type
const ROW = 24; // of each layer below it, which works in place
const COMPLAINT = 19; // of a line that says what is wrong
const BLOCK = 62;
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif";
const FONTS = { name: `600 13px ${FONT}`, detail: `11px ${FONT}`, complaint: `600 11px ${FONT}` };

// The size of an item, given the layers that have problems.
function sizeOf(item, phase, problemsOf) {
  if (item.kind === "block") return { width: WIDTH + 16, height: BLOCK };
  const { layers } = phase.boxes[item.start];
  const complaints = layers.filter((layer) => problemsOf(layer).length).length;
  return { width: WIDTH, height: HEAD + (layers.length - 1) * ROW + complaints * COMPLAINT };
}
