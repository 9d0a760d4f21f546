// What the layout library takes from browsers, for engines that have the language alone.

globalThis.structuredClone ??= function clone(value) {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(clone);
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, clone(part)]));
};
