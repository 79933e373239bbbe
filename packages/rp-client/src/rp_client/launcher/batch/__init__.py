"""The launcher that submits pilots as jobs: to batch systems, and to hosts over ssh.

It may import the other modules of `rp_client.launcher`, `rp_client.bootstrap` and rp-api; radical.saga only in `saga/`.
"""
