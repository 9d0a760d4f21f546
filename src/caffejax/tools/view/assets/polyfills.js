// Functions of browsers that the layout library uses, for engines without browser functions.

globalThis.structuredClone ??= function clone(value) {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(clone);
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, clone(part)]));
};
