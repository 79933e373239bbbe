"""Plain data as bytes: the codec, and checks of the form of messages.

Imports `rp_api.errors` and nothing else of rp-api.
"""
