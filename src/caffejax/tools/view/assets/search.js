// Search for layers by name, type or blob.

const SHOWN_AT_ONCE = 50;

// Returns the indices of the layers that contain every word of a query. Layers whose names begin with it come first.
function found(layers, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const texts = layers.map(({ name, type, family, bottoms, tops }) => [name, type, family, ...bottoms, ...tops].join("\n").toLowerCase());
  const matches = layers.map((_, number) => number).filter((number) => words.every((word) => texts[number].includes(word)));
  const rank = (number) => {
    const name = layers[number].name.toLowerCase();
    return name === words[0] ? 0 : name.startsWith(words[0]) ? 1 : words.every((word) => name.includes(word)) ? 2 : 3;
  };
  return matches.sort((a, b) => rank(a) - rank(b) || a - b);
}

class Search {
  // `layers` returns the layers of the phase. `go` is called with the index of a layer, `mark` with all matches or null.
  constructor({ layers, go, mark }) {
    Object.assign(this, { layers, go, mark, matches: [], at: 0 });
    this.field = byId("search");
    this.list = byId("matches");
    this.field.addEventListener("input", () => this.look());
    this.field.addEventListener("focus", () => this.look());
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.field.addEventListener("blur", () => this.close());
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // the field keeps the focus
      const item = event.target.closest("li[data-match]");
      if (item) this.choose(Number(item.dataset.match));
    });
  }

  look() {
    const query = this.field.value.trim();
    this.matches = found(this.layers(), query);
    this.at = 0;
    this.mark(query ? new Set(this.matches) : null);
    this.list.hidden = !query;
    this.list.replaceChildren(...(query ? this.items() : []));
  }

  items() {
    const layers = this.layers();
    const item = (number, index) =>
      html(
        "li",
        { "data-match": index, role: "option", "aria-selected": String(index === this.at), class: index === this.at ? "at" : null },
        html("span", { class: `dot family-${layers[number].family}` }),
        html("span", { class: "name" }, shown(layers[number].name)),
        html("span", { class: "muted" }, shown(layers[number].type)),
      );
    const count = this.matches.length;
    const said = count === 0 ? "no layer, type or blob is called so" : count > SHOWN_AT_ONCE ? `${count} layers, the first ${SHOWN_AT_ONCE}` : counted(count, "layer");
    return [html("li", { class: "count" }, said), ...this.matches.slice(0, SHOWN_AT_ONCE).map(item)];
  }

  key(event) {
    const last = Math.min(this.matches.length, SHOWN_AT_ONCE) - 1;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.at = Math.max(0, Math.min(last, this.at + (event.key === "ArrowDown" ? 1 : -1)));
      this.list.replaceChildren(...this.items());
      this.list.querySelector(".at")?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    } else if (event.key === "Enter" && this.matches.length) {
      this.choose(this.at);
    } else if (event.key === "Escape") {
      this.clear();
      event.stopPropagation();
    }
  }

  choose(index) {
    this.go(this.matches[index]);
    this.field.blur();
  }

  lookFor(query) {
    this.field.value = query;
    this.field.focus();
    this.look();
  }

  close() {
    this.list.hidden = true;
  }

  clear() {
    this.field.value = "";
    this.field.blur();
    this.look();
  }
}
