"""The subcommands of ``dip``, one a file; each imports what it needs only when it runs."""
