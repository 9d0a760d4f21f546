"""From a graph to what runs: passes over a schedule, and its one interpreter."""
