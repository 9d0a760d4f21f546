// Layout of a graph by the layout library. `caffejax draw_net` runs it outside browsers.

// Places nodes in ranks so that edges have the same direction.
// nodes: {id, width, height}; edges: {from, to, width, height, weight}, where width and height are those of a label.
// Returns the size of the drawing, the centres of the nodes, and for each edge its points and the centre of its label,
// in the order of the arguments.
function layOut(nodes, edges, rankdir = "TB", gaps = { beside: 24, between: 34 }) {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir, nodesep: gaps.beside, ranksep: gaps.between, edgesep: 14 });
  for (const { id, width, height } of nodes) graph.setNode(id, { width, height });
  edges.forEach(({ from, to, width = 0, height = 0, weight = 1 }, number) =>
    graph.setEdge(from, to, { width, height, weight, labelpos: "c" }, String(number)),
  );
  dagre.layout(graph);
  const { width, height } = graph.graph();
  return {
    width: Number.isFinite(width) ? width : 0,
    height: Number.isFinite(height) ? height : 0,
    nodes: nodes.map(({ id }) => pick(graph.node(id))),
    edges: edges.map(({ from, to }, number) => {
      const { points, ...label } = graph.edge(from, to, String(number));
      return { points: points.map(pick), label: pick(label) };
    }),
  };
}

function pick({ x = 0, y = 0 }) {
  return { x, y };
}
