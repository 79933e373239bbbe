"""radical.saga, for the batch systems that only it reaches; imported in the launcher's process, when it is needed.

It may import `rp_client.launcher.batch.shell` and rp-api.
"""
