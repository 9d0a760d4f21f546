// Names and numbers as people read them.

// Text from a file, with what does not show, or turns the direction of writing, as its code: ⟨202E⟩.
function shown(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (c) => `⟨${c.codePointAt(0).toString(16).toUpperCase()}⟩`);
}

// A count in thousands, millions, billions: 1.23 M.
function inWords(count) {
  const units = ["", " k", " M", " G", " T", " P"];
  let power = 0;
  while (Math.abs(count) >= 999.5 && power < units.length - 1) [count, power] = [count / 1000, power + 1];
  return power === 0 ? String(count) : count.toPrecision(3) + units[power];
}

function bytesInWords(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (bytes >= 1023.5 && power < units.length - 1) [bytes, power] = [bytes / 1024, power + 1];
  return `${power === 0 ? bytes : bytes.toPrecision(3)} ${units[power]}`;
}

function shapeInWords(shape) {
  return shape.length ? shape.join(" × ") : "scalar";
}

// Sizes such as 3x3 with a cross.
function crossed(text) {
  return text.replace(/(\d)x(?=\d)/g, "$1×");
}

function counted(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

const ruler = document.createElement("canvas").getContext("2d");
const shortened = new Map();

// Text that is no wider than that in a font: cut in its middle, or so that a share of what is kept is its end.
function fitted(text, width, font, end = 0.5) {
  const key = `${font}|${width}|${end}|${text}`;
  if (!shortened.has(key)) {
    if (shortened.size > 20000) shortened.clear();
    shortened.set(key, cut(shown(text.slice(0, 400)), width, font, end));
  }
  return shortened.get(key);
}

function cut(text, width, font, share) {
  ruler.font = font;
  if (ruler.measureText(text).width <= width) return text;
  const letters = [...text];
  let [low, high] = [1, letters.length - 1];
  const with_ = (count) => {
    const end = Math.floor(count * share);
    return `${letters.slice(0, count - end).join("")}…${end ? letters.slice(-end).join("") : ""}`;
  };
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (ruler.measureText(with_(middle)).width <= width) low = middle;
    else high = middle - 1;
  }
  return with_(low);
}
