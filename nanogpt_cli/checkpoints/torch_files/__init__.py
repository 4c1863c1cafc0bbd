"""Files that torch writes: both formats read without torch, one written.

`zip_format` and `legacy_format` read, with `zips` and `rebuild` below them; `write`, `dump` and
`zip_write` write; `reread` and `records` are for files that are written again as they were.
"""
