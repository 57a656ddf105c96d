"""How instructions are replaced, merged and told apart, for many passes."""
