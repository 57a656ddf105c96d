"""A timeline as one web page that needs nothing but a browser."""
