"""What every shell stands on: files, journals, logs, identities, processes of this machine."""
