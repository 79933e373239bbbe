"""radical.saga as the submitter for batch systems without a native module; imported only outside of the application.

Imports `rp_client.launcher.batch.shell`, `rp_client.launcher.batch.systems`, and rp-api.
"""
