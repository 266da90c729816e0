"""The `apiary` command and what needs third-party packages."""
