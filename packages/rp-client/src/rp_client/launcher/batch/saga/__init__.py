"""radical.saga as the submitter for batch systems without a native module; imported only in the launcher's process.

Imports `rp_client.launcher.batch.shell` and rp-api.
"""
