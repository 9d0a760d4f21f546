// Names and numbers as readable text.

// Returns text from a file, with invisible and bidirectional control characters as their code: ⟨202E⟩.
function shown(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (c) => `⟨${c.codePointAt(0).toString(16).toUpperCase()}⟩`);
}

// Returns a count with a unit such as k or M: 1.23 M.
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

// Returns text with sizes such as 3x3 written as 3×3.
function crossed(text) {
  return text.replace(/(\d)x(?=\d)/g, "$1×");
}

function counted(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

const ruler = document.createElement("canvas").getContext("2d");
const shortened = new Map();

// Returns text that is cut to a width in a font. `end` is the share of the remaining characters that are after the cut.
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
