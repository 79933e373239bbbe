"""The launcher that submits pilots as jobs: to batch systems, and to hosts over ssh.

Imports other modules of `rp_client.launcher`, `rp_client.bootstrap` and rp-api; only `saga` imports radical.saga.
"""
