"""Published figures beside ours: what ``docs/records.md`` shows is run, kept and written here."""
