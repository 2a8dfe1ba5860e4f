"""Parts of `claims`, `figures` and `pages`: schema, words, tables, descriptions."""
