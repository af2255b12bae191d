"""Wrong rewrites of graphs, planted in an exporter's optimiser or in a runtime's."""
