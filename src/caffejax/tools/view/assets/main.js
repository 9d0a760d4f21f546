// Start of the page.

const given = JSON.parse(byId("net").textContent);
const view = new View(given.net);
view.firstDrawn = performance.now(); // milliseconds since the page was asked for
window.caffejaxView = view; // for those who look into the page
if (given.live) {
  let first = true; // what the page came with
  follow(
    (net) => {
      if (!first || JSON.stringify(net) !== JSON.stringify(given.net)) view.take(net, view.net);
      first = false;
    },
    (sentence) => {
      byId("said").textContent = shown(sentence);
      byId("said").hidden = !sentence;
    },
  );
}
