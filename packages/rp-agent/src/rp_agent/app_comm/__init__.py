"""Channels between the tasks of an application (`PilotDescription.app_comm`): a broker process per pilot serves them.

It imports `rp_api`, and the child processes and the network of `rp_agent`.
"""
