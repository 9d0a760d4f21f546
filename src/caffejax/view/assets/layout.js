// The layout library, asked once for a whole graph. Also run outside of browsers, by caffejax draw_net.

// Places nodes in ranks so that edges lead the same way.
// nodes: {id, width, height}; edges: {from, to, width, height, weight}, where width and height leave room for a label.
// Returns the size of the drawing, the nodes' centres, and for each edge the points that it is led through and where
// its label goes, each in the order given.
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
