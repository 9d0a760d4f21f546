// Sizes of boxes and closed blocks, and the fonts of their texts.

const WIDTH = 220;
const HEAD = 42; // height of the first layer of a box, with its name and its type
const ROW = 24; // height of each in-place layer below it
const COMPLAINT = 19; // height of a line with a problem
const BLOCK = 62;
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif";
const FONTS = { name: `600 13px ${FONT}`, detail: `11px ${FONT}`, complaint: `600 11px ${FONT}` };

// Returns the size of an item. `problemsOf` returns the problems of a layer.
function sizeOf(item, phase, problemsOf) {
  if (item.kind === "block") return { width: WIDTH + 16, height: BLOCK };
  const { layers } = phase.boxes[item.start];
  const complaints = layers.filter((layer) => problemsOf(layer).length).length;
  return { width: WIDTH, height: HEAD + (layers.length - 1) * ROW + complaints * COMPLAINT };
}
