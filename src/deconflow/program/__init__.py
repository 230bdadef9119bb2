"""The program ``deconflow``, one file a command; it needs the ``cli`` extra."""
