"""Launchers start the agents of pilots, watch them and end them."""
