"""What :class:`deconflow.Deconvolver` does for the user: flows beside XD, and the choice."""
