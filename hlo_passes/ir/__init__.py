"""The graph and its values: shapes, attributes, literals."""
