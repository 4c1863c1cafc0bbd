"""Our decoding beside that of other engines, in one run on one machine: see README.md here."""
